//! State of an older program in a newer one.
use super::prelude::*;

mod v1 {
    use state_api::StateType;

    #[derive(Clone, Debug, PartialEq, StateType)]
    pub(super) struct Flight {
        pub(super) carrier: String,
        pub(super) delay: u32,
        pub(super) gate: u8,
    }
}

/// As in version 1, with a field added, one removed and one widened.
#[derive(Clone, Debug, PartialEq, StateType)]
#[state(rename = "Flight")]
struct Flight2 {
    carrier: String,
    delay: u64,
    #[state(default = 7)]
    stops: u32,
}

/// As in version 1, with a field of another type.
#[derive(Clone, Debug, PartialEq, StateType)]
#[state(rename = "Flight")]
struct Flight3 {
    carrier: String,
    delay: String,
    gate: u8,
}

/// The fields of version 1 under another name.
#[derive(Clone, Debug, PartialEq, StateType)]
struct Voyage {
    carrier: String,
    delay: u32,
    gate: u8,
}

fn old(key: u32) -> v1::Flight {
    v1::Flight {
        carrier: format!("C{key}"),
        delay: key,
        gate: 3,
    }
}

fn new(key: u32) -> Flight2 {
    Flight2 {
        carrier: format!("C{key}"),
        delay: u64::from(key),
        stops: 7,
    }
}

fn plain<T: StateType>(states: &mut States<u32>) -> Result<ValueState<T>> {
    states.value("state")
}

/// A type that did not change is read as it is. (K-207, K-226)
pub fn an_unchanged_type_is_read_as_it_is(setup: &Setup) {
    let mut job = setup.start(plain::<v1::Flight>);
    for key in 0..20 {
        job.at(&key, |at, state| at.value(state).set(old(key)));
    }
    let mut job = job.restart(plain::<v1::Flight>).unwrap();
    for key in 0..20 {
        assert_eq!(
            job.at(&key, |at, state| at.value(state).get()),
            Some(old(key))
        );
    }
}

/// A value type may gain a field with a default, lose a field and widen one; later snapshots are in the new schema. (K-203, K-210, K-230)
pub fn a_value_type_may_evolve(setup: &Setup) {
    for codec in [CodecKind::Compact, CodecKind::Evolvable] {
        let options = move || StateOptions::new("state").codec(codec);
        let mut job =
            setup.start(move |states: &mut States<u32>| states.value::<v1::Flight, u32>(options()));
        for key in 0..40 {
            for namespace in 0..2 {
                job.at(&key, |at, state| {
                    at.value_in(state, &namespace).set(old(key + namespace))
                });
            }
        }
        let register = move |states: &mut States<u32>| states.value::<Flight2, u32>(options());
        let mut job = job.restart(register).unwrap();
        assert_eq!(job.entries("state"), 80);
        // Written, and read in a third run that knows the new type alone.
        job.at(&0, |at, state| {
            at.value_in(state, &0).update_or(|flight| flight.stops = 9)
        });
        let mut job = job.restart(register).unwrap();
        assert_eq!(job.entries("state"), 80);
        for key in 0..40 {
            for namespace in 0..2 {
                let mut expected = new(key + namespace);
                if (key, namespace) == (0, 0) {
                    expected.stops = 9;
                }
                assert_eq!(
                    job.at(&key, |at, state| at.value_in(state, &namespace).get()),
                    Some(expected)
                );
            }
        }
        let checkpoint = job.snapshot(setup.mode.kind());
        let schemas: Vec<_> = checkpoint
            .all()
            .flat_map(|handle| handle.states())
            .map(|state| &state.meta.value.schema)
            .collect();
        assert!(!schemas.is_empty());
        assert!(
            schemas
                .into_iter()
                .all(|schema| *schema == Flight2::schema())
        );
    }
}

/// Changes a value that is there.
trait UpdateOr<T> {
    fn update_or(&mut self, f: impl FnOnce(&mut T)) -> Result<()>;
}

impl<T, V: ValueAccess<T>> UpdateOr<T> for V {
    fn update_or(&mut self, f: impl FnOnce(&mut T)) -> Result<()> {
        self.modify(|value| {
            if let Some(value) = value {
                f(value);
            }
        })
    }
}

/// The codec of a value may change between two runs. (K-204, K-214)
pub fn the_codec_may_change(setup: &Setup) {
    let options = |codec| StateOptions::new("state").codec(codec);
    let mut job = setup.start(plain::<v1::Flight>);
    for key in 0..20 {
        job.at(&key, |at, state| at.value(state).set(old(key)));
    }
    let evolvable = move |states: &mut States<u32>| {
        states.value::<v1::Flight, ()>(options(CodecKind::Evolvable))
    };
    let mut job = job.restart(evolvable).unwrap();
    job.at(&20, |at, state| at.value(state).set(old(20)));
    let mut job = job.restart(plain::<v1::Flight>).unwrap();
    for key in 0..21 {
        assert_eq!(
            job.at(&key, |at, state| at.value(state).get()),
            Some(old(key))
        );
    }
}

/// Elements of lists, values of maps and accumulators evolve as values do. (K-206, K-208)
pub fn elements_and_map_values_may_evolve(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        let list = states.list::<v1::Flight, ()>("list")?;
        let map = states.map::<String, v1::Flight, ()>("map")?;
        let sorted = states.sorted_map::<i64, v1::Flight, ()>("sorted")?;
        Ok((
            list,
            map,
            sorted,
            states.reducing::<u32, ()>("sum", |total, input| Ok(total + input))?,
        ))
    });
    for key in 0..20 {
        job.at(&key, |at, (list, map, sorted, sum)| {
            at.list(list).extend(vec![old(key), old(key + 1)])?;
            at.map(map).put("a".to_owned(), old(key))?;
            at.sorted_map(sorted).put(-1, old(key))?;
            at.reducing(sum).add(key)
        });
    }
    let mut job = job
        .restart(|states: &mut States<u32>| {
            let list = states.list::<Flight2, ()>("list")?;
            let map = states.map::<String, Flight2, ()>("map")?;
            let sorted = states.sorted_map::<i64, Flight2, ()>("sorted")?;
            Ok((
                list,
                map,
                sorted,
                states.reducing::<u64, ()>("sum", |total, input| Ok(total + input))?,
            ))
        })
        .unwrap();
    for _ in 0..2 {
        for key in 0..20 {
            job.at(&key, |at, (list, map, sorted, sum)| {
                assert_eq!(at.list(list).get()?, [new(key), new(key + 1)]);
                assert_eq!(at.map(map).entries()?, [("a".to_owned(), new(key))]);
                assert_eq!(at.sorted_map(sorted).entries()?, [(-1, new(key))]);
                assert_eq!(at.reducing(sum).get()?, Some(u64::from(key)));
                Ok(())
            });
        }
        job.settle();
    }
}

/// A timed state may evolve too; the times of its values stay. (K-187, K-203)
pub fn a_timed_state_may_evolve(setup: &Setup) {
    let options =
        || StateOptions::new("state").ttl(TtlConfig::new(Duration::from_millis(100)).unwrap());
    let mut job = setup.start(move |states: &mut States<u32>| states.list::<u32, ()>(options()));
    job.at(&1, |at, state| at.list(state).push(1));
    setup.clock.advance(60);
    job.at(&1, |at, state| at.list(state).push(2));
    let mut job = job
        .restart(move |states: &mut States<u32>| states.list::<u64, ()>(options()))
        .unwrap();
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [1, 2]);
    setup.clock.advance(40);
    assert_eq!(job.at(&1, |at, state| at.list(state).get()), [2]);
}

/// A type that can't become the new one is refused when it is registered, with state, old and new type named. (K-205, K-230)
pub fn an_incompatible_type_is_refused_at_registration(setup: &Setup) {
    for kind in 0..4 {
        let mut job = setup.start(plain::<v1::Flight>);
        for key in 0..20 {
            job.at(&key, |at, state| at.value(state).set(old(key)));
        }
        let result = match kind {
            0 => job.restart(plain::<Flight3>).map(|_| ()),
            1 => job.restart(plain::<Voyage>).map(|_| ()),
            2 => job.restart(plain::<u64>).map(|_| ()),
            // Narrower than what was written.
            _ => job.restart(plain::<(String, u32)>).map(|_| ()),
        };
        let error = fails(ErrorKind::Incompatible, result);
        assert_eq!(error.context("state"), Some("state"), "{error}");
        assert!(error.to_string().contains("Flight"), "{error}");
    }
}

/// A registration that was refused leaves the restored state for one that fits. (K-211)
pub fn a_refused_registration_leaves_the_state(setup: &Setup) {
    let mut job = setup.start(plain::<v1::Flight>);
    for key in 0..20 {
        job.at(&key, |at, state| at.value(state).set(old(key)));
    }
    let mut job = job
        .restart(|states: &mut States<u32>| {
            fails(ErrorKind::Incompatible, plain::<Flight3>(states));
            fails(
                ErrorKind::Incompatible,
                states.list::<v1::Flight, ()>("state"),
            );
            plain::<Flight2>(states)
        })
        .unwrap();
    for key in 0..20 {
        assert_eq!(
            job.at(&key, |at, state| at.value(state).get()),
            Some(new(key))
        );
    }
}

/// Keys never migrate: another key type is refused before any state is touched. (K-112, K-213)
pub fn keys_never_migrate(setup: &Setup) {
    let mut job = setup.start(plain::<u64>);
    job.at(&1, |at, state| at.value(state).set(1));
    let checkpoint = job.snapshot(setup.mode.kind());
    drop(job);
    let wider = setup.restore(
        &checkpoint,
        setup.mode.asserted_at(),
        |states: &mut States<u64>| states.value::<u64, ()>("state"),
    );
    fails(ErrorKind::Incompatible, wider);
    let text = setup.restore(
        &checkpoint,
        setup.mode.asserted_at(),
        |states: &mut States<String>| states.value::<u64, ()>("state"),
    );
    fails(ErrorKind::Incompatible, text);
}

/// Namespaces never migrate. (K-216)
pub fn namespaces_never_migrate(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.value::<u64, u32>("state"));
    job.at(&1, |at, state| at.value_in(state, &1).set(1));
    let checkpoint = job.snapshot(setup.mode.kind());
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.value::<u64, u64>("state")
        }),
    );
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, plain::<u64>),
    );
}

/// Map keys never migrate. (K-208, K-220)
pub fn map_keys_never_migrate(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.map::<u32, u64, ()>("map")?,
            states.sorted_map::<u32, u64, ()>("sorted")?,
        ))
    });
    job.at(&1, |at, (map, sorted)| {
        at.map(map).put(1, 1)?;
        at.sorted_map(sorted).put(1, 1)
    });
    let checkpoint = job.snapshot(setup.mode.kind());
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.map::<u64, u64, ()>("map")
        }),
    );
    let sorted = |states: &mut States<u32>| states.sorted_map::<u64, u64, ()>("sorted");
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, sorted),
    );
}

/// Timers never migrate: a set of timers with other namespaces is refused. (K-093, K-212)
pub fn timers_never_migrate(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| states.timers::<u32>("timers"));
    job.at(&1, |at, timers| at.timers_in(timers, &1).set(1).map(|_| ()));
    let checkpoint = job.snapshot(setup.mode.kind());
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.timers::<u64>("timers")
        }),
    );
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.timers::<()>("timers")
        }),
    );
}

/// A state restored as one kind can't be registered as another. (K-232)
pub fn the_kind_of_a_state_stays(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.list::<u64, ()>("list")?,
            states.map::<u64, u64, ()>("map")?,
            states.value::<u64, ()>("value")?,
        ))
    });
    job.at(&1, |at, (list, map, value)| {
        at.list(list).push(1)?;
        at.map(map).put(1, 1)?;
        at.value(value).set(1)
    });
    let checkpoint = job.snapshot(setup.mode.kind());
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.value::<u64, ()>("list")
        }),
    );
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.sorted_map::<u64, u64, ()>("map")
        }),
    );
    fails(
        ErrorKind::Incompatible,
        setup.restore(&checkpoint, 2, |states: &mut States<u32>| {
            states.timers::<()>("list")
        }),
    );
    let sum = |states: &mut States<u32>| {
        states.reducing::<u64, ()>("value", |total, input| Ok(total + input))
    };
    fails(ErrorKind::Incompatible, setup.restore(&checkpoint, 2, sum));
}

/// States may be registered in another order than before, with new ones among them. (K-115, K-116)
pub fn the_order_of_registration_does_not_matter(setup: &Setup) {
    let mut job = setup.start(|states: &mut States<u32>| {
        Ok((
            states.value::<u64, ()>("a")?,
            states.list::<String, ()>("b")?,
        ))
    });
    for key in 0..20 {
        job.at(&key, |at, (a, b)| {
            at.value(a).set(u64::from(key))?;
            at.list(b).push(key.to_string())
        });
    }
    let mut job = job
        .restart(|states: &mut States<u32>| {
            let new = states.value::<u64, ()>("0")?;
            let b = states.list::<String, ()>("b")?;
            Ok((states.value::<u64, ()>("a")?, b, new))
        })
        .unwrap();
    for key in 0..20 {
        let found = job.at(&key, |at, (a, b, new)| {
            Ok((at.value(a).get()?, at.list(b).get()?, at.value(new).get()?))
        });
        assert_eq!(found, (Some(u64::from(key)), vec![key.to_string()], None));
    }
}
