//! The order of values, and the one form of what has no order of its own.
use std::cmp::Ordering;

use state_api::{Fields, Schema, Value};

/// Orders two values of a schema as their types order them: what a `BTreeSet` or `BTreeMap` of the job iterates in.
pub(crate) fn order(schema: &Schema, a: &Value, b: &Value) -> Ordering {
    match (schema, a, b) {
        (_, Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (_, Value::Int(a), Value::Int(b)) => a.cmp(b),
        (_, Value::UInt(a), Value::UInt(b)) => a.cmp(b),
        (_, Value::F32(a), Value::F32(b)) => a.total_cmp(b),
        (_, Value::F64(a), Value::F64(b)) => a.total_cmp(b),
        (_, Value::Char(a), Value::Char(b)) => a.cmp(b),
        (_, Value::Str(a), Value::Str(b)) => a.cmp(b),
        (_, Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (_, Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (_, Value::Opaque { bytes: a, .. }, Value::Opaque { bytes: b, .. }) => a.cmp(b),
        (Schema::Option(inner), Value::Option(a), Value::Option(b)) => match (a, b) {
            (Some(a), Some(b)) => order(inner, a, b),
            _ => a.is_some().cmp(&b.is_some()),
        },
        (
            Schema::List(item) | Schema::Set(item) | Schema::Array(item, _),
            Value::List(a),
            Value::List(b),
        ) => {
            let pairs = a.iter().zip(b).map(|(a, b)| order(item, a, b));
            first(pairs).then(a.len().cmp(&b.len()))
        }
        (Schema::Map(key, value), Value::Map(a), Value::Map(b)) => {
            let pairs = a
                .iter()
                .zip(b)
                .map(|((k, v), (l, w))| order(key, k, l).then_with(|| order(value, v, w)));
            first(pairs).then(a.len().cmp(&b.len()))
        }
        (Schema::Tuple(parts), Value::Tuple(a), Value::Tuple(b)) => {
            let pairs = parts.iter().zip(a.iter().zip(b));
            first(pairs.map(|(part, (a, b))| order(part, a, b)))
        }
        (Schema::Struct(it), Value::Record { fields: a, .. }, Value::Record { fields: b, .. }) => {
            fields(&it.fields, a, b)
        }
        (
            Schema::Enum(it),
            Value::Variant {
                variant: v,
                fields: a,
                ..
            },
            Value::Variant {
                variant: w,
                fields: b,
                ..
            },
        ) => {
            let number = |name: &str| it.variants.iter().position(|one| one.name == name);
            let by_variant = number(v).cmp(&number(w));
            by_variant.then_with(|| match number(v).and_then(|i| it.variants.get(i)) {
                Some(variant) => fields(&variant.fields, a, b),
                None => Ordering::Equal,
            })
        }
        // Two units; values of other schemas have no order that anybody relies on.
        _ => a.to_json_string().cmp(&b.to_json_string()),
    }
}

fn fields<N>(of: &Fields, a: &[(N, Value)], b: &[(N, Value)]) -> Ordering {
    let pairs = of.as_slice().iter().zip(a.iter().zip(b));
    first(pairs.map(|(field, ((_, a), (_, b)))| order(&field.schema, a, b)))
}

fn first(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// Sorts the elements of a set; returns one that it has twice.
pub(crate) fn sort_set<'a>(item: &Schema, items: &'a mut [Value]) -> Option<&'a Value> {
    items.sort_by(|a, b| order(item, a, b));
    let twice = items
        .windows(2)
        .find(|pair| order(item, &pair[0], &pair[1]).is_eq());
    twice.map(|pair| &pair[0])
}

/// Sorts the entries of a map by their keys; returns a key that it has twice.
pub(crate) fn sort_map<'a>(key: &Schema, entries: &'a mut [(Value, Value)]) -> Option<&'a Value> {
    entries.sort_by(|a, b| order(key, &a.0, &b.0));
    let twice = entries
        .windows(2)
        .find(|pair| order(key, &pair[0].0, &pair[1].0).is_eq());
    twice.map(|pair| &pair[0].0)
}

/// Says whether values of a schema may hold sets or maps.
pub(crate) fn has_unordered(schema: &Schema) -> bool {
    let any = |fields: &Fields| fields.as_slice().iter().any(|f| has_unordered(&f.schema));
    match schema {
        Schema::Set(_) | Schema::Map(..) => true,
        Schema::Option(inner) | Schema::List(inner) | Schema::Array(inner, _) => {
            has_unordered(inner)
        }
        Schema::Tuple(parts) => parts.iter().any(has_unordered),
        Schema::Struct(it) => any(&it.fields),
        Schema::Enum(it) => it.variants.iter().any(|v| any(&v.fields)),
        _ => false,
    }
}

/// Sorts every set and map within a value, so that equal ones are alike: hash tables of the job stand in another order.
pub(crate) fn sort_within(schema: &Schema, value: &mut Value) {
    match (schema, value) {
        (Schema::Option(inner), Value::Option(Some(value))) => sort_within(inner, value),
        (Schema::List(item) | Schema::Array(item, _), Value::List(items)) => {
            items.iter_mut().for_each(|v| sort_within(item, v));
        }
        (Schema::Set(item), Value::List(items)) => {
            items.iter_mut().for_each(|v| sort_within(item, v));
            sort_set(item, items);
        }
        (Schema::Map(key, of), Value::Map(entries)) => {
            for (k, v) in entries.iter_mut() {
                sort_within(key, k);
                sort_within(of, v);
            }
            sort_map(key, entries);
        }
        (Schema::Tuple(parts), Value::Tuple(values)) => {
            let pairs = parts.iter().zip(values);
            pairs.for_each(|(part, v)| sort_within(part, v));
        }
        (Schema::Struct(it), Value::Record { fields, .. }) => sort_fields(&it.fields, fields),
        (
            Schema::Enum(it),
            Value::Variant {
                variant, fields, ..
            },
        ) => {
            if let Some(found) = it.variants.iter().find(|one| one.name == *variant) {
                sort_fields(&found.fields, fields);
            }
        }
        _ => {}
    }
}

fn sort_fields<N>(of: &Fields, fields: &mut [(N, Value)]) {
    let pairs = of.as_slice().iter().zip(fields);
    pairs.for_each(|(field, (_, value))| sort_within(&field.schema, value));
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use state_api::StateType;

    use super::*;

    #[track_caller]
    fn as_the_type<T: StateType + Ord>(mut values: Vec<T>) {
        let schema = T::schema();
        values.sort();
        let sorted: Vec<Value> = values.iter().map(T::to_value).collect();
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(order(&schema, a, b), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn values_are_ordered_as_their_types_are() {
        as_the_type(vec![-1i16, 300, 2]);
        as_the_type(vec![1u64, 256, 2]);
        as_the_type(vec!["b".to_owned(), "a".into(), "".into(), "aa".into()]);
        as_the_type(vec![Some(3u8), None, Some(1)]);
        as_the_type(vec![vec![1u8, 2], vec![1], vec![2], vec![]]);
        as_the_type(vec![(2u8, 'a'), (1, 'z'), (1, 'b')]);
        as_the_type(vec![Duration::new(1, 5), Duration::new(0, 7)]);
        as_the_type(vec![[1u16, 256], [1, 2]]);
        as_the_type(vec![
            BTreeSet::from([3u8]),
            BTreeSet::from([1, 2]),
            BTreeSet::new(),
        ]);
        as_the_type(vec![
            BTreeMap::from([(1u8, 2u16)]),
            BTreeMap::from([(1, 1)]),
            BTreeMap::new(),
        ]);
    }
}
