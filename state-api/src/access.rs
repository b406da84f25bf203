//! What user code can do with keyed state, whichever representation holds it.
//!
//! Every trait here is implemented twice in `managed-state`: over live tables and over a byte store. A value of such a type
//! is a view bound to one key and one namespace. Times-to-live are applied inside: an expired entry reads as absent.
//!
//! Each rule under *Contract* names its functions in `backend-testkit`, module `rules`; those about times-to-live are in
//! `rules::ttl`, those about what a snapshot sees in `rules::isolation`.

use crate::Result;

/// One value per key and namespace.
///
/// # Contract
/// - An absent value reads as `None` (`value::an_unset_value_reads_as_none`), or as the descriptor's default if it has one;
///   the default is never stored (`value::a_default_is_read_but_never_stored`) and never shared between keys
///   (`value::a_default_is_not_shared_between_keys`).
/// - Reads see the last write (`value::the_last_set_wins`, `value::modifying_stores_what_is_left`).
/// - A value changed to `None` leaves no entry (`value::modifying_to_none_clears`); clearing nothing changes nothing
///   (`value::clearing_nothing_changes_nothing`).
/// - Entries are counted exactly (`value::entries_are_counted`).
pub trait ValueAccess<T> {
    /// Calls `f` with the value in place, without a copy where the representation allows it.
    ///
    /// # Errors
    /// Those of the backend.
    fn with<R>(&mut self, f: impl FnOnce(Option<&T>) -> R) -> Result<R>;

    /// Returns a copy of the value.
    ///
    /// # Errors
    /// Those of the backend.
    fn get(&mut self) -> Result<Option<T>>
    where
        T: Clone,
    {
        self.with(|value| value.cloned())
    }

    /// Sets the value.
    ///
    /// # Errors
    /// Those of the backend; `LimitExceeded` past a memory limit, the old value intact.
    fn set(&mut self, value: T) -> Result<()>;

    /// Reads, changes and writes the value in one go: what `f` leaves is stored, `None` removes it.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    fn modify<R>(&mut self, f: impl FnOnce(&mut Option<T>) -> R) -> Result<R>;

    /// Changes the value in place, starting from the descriptor's default or else `T::default()` if there is none.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    fn update<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> Result<R>
    where
        T: Default,
    {
        self.modify(|value| f(value.get_or_insert_default()))
    }

    /// Removes the value.
    ///
    /// # Errors
    /// Those of the backend.
    fn clear(&mut self) -> Result<()>;
}

/// A list per key and namespace, in the order of insertion.
///
/// # Contract
/// - An empty list and no list are the same (`list::an_unset_list_is_empty`, `list::an_empty_list_is_no_list`).
/// - Elements keep their order; replacing by an empty list clears, adding nothing changes nothing
///   (`list::elements_keep_their_order`).
/// - Retaining and popping leave the rest in order (`list::retaining_and_popping_leave_the_rest`), however long the list is
///   (`list::a_long_list_is_popped_and_appended_to`).
/// - An error of the visitor stops the visit and changes nothing (`list::an_error_of_the_visitor_stops_the_visit`).
/// - Elements expire one by one (`ttl::list_elements_expire_one_by_one`).
pub trait ListAccess<T> {
    /// Appends an element.
    ///
    /// # Errors
    /// Those of the backend; `LimitExceeded` past a memory limit.
    fn push(&mut self, element: T) -> Result<()>;

    /// Appends elements; all or none.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    fn extend(&mut self, elements: Vec<T>) -> Result<()>;

    /// Puts elements in place of all that are there.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    fn replace(&mut self, elements: Vec<T>) -> Result<()>;

    /// Calls `f` for each element in order until it returns an error.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    fn for_each(&mut self, f: impl FnMut(&T) -> Result<()>) -> Result<()>;

    /// Returns the elements.
    ///
    /// # Errors
    /// Those of the backend.
    fn get(&mut self) -> Result<Vec<T>>
    where
        T: Clone,
    {
        let mut elements = Vec::new();
        self.for_each(|element| {
            elements.push(element.clone());
            Ok(())
        })?;
        Ok(elements)
    }

    /// Keeps the elements for which `f` returns true.
    ///
    /// # Errors
    /// Those of the backend.
    fn retain(&mut self, f: impl FnMut(&T) -> bool) -> Result<()>;

    /// Removes and returns the first element.
    ///
    /// # Errors
    /// Those of the backend.
    fn pop_front(&mut self) -> Result<Option<T>>;

    /// Returns the number of elements.
    ///
    /// # Errors
    /// Those of the backend.
    fn len(&mut self) -> Result<usize>;

    /// Returns whether there is no element.
    ///
    /// # Errors
    /// Those of the backend.
    fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// Those of the backend.
    fn clear(&mut self) -> Result<()>;
}

/// A map per key and namespace, in no order.
///
/// # Contract
/// - An empty map and no map are the same (`map::an_unset_map_is_empty`, `map::an_empty_map_is_no_map`).
/// - It agrees with a plain map, entry by entry (`map::a_map_is_a_map`), also one whose value is none
///   (`map::an_entry_with_the_value_none_is_there`).
/// - A visit sees each entry once (`map::retaining_sees_each_entry_once`) and ends with the visitor's error
///   (`map::an_error_of_the_visitor_ends_the_visit`).
/// - Entries expire one by one (`ttl::map_entries_expire_one_by_one`).
pub trait MapAccess<MK, MV> {
    /// Calls `f` with the value of a map key in place.
    ///
    /// # Errors
    /// Those of the backend.
    fn with<R>(&mut self, key: &MK, f: impl FnOnce(Option<&MV>) -> R) -> Result<R>;

    /// Returns a copy of the value of a map key.
    ///
    /// # Errors
    /// Those of the backend.
    fn get(&mut self, key: &MK) -> Result<Option<MV>>
    where
        MV: Clone,
    {
        self.with(key, |value| value.cloned())
    }

    /// Sets the value of a map key.
    ///
    /// # Errors
    /// Those of the backend; `LimitExceeded` past a memory limit.
    fn put(&mut self, key: MK, value: MV) -> Result<()>;

    /// Sets many; all or none.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn put_all(&mut self, entries: Vec<(MK, MV)>) -> Result<()>;

    /// Reads, changes and writes the value of a map key in one go; `None` removes it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn modify<R>(&mut self, key: &MK, f: impl FnOnce(&mut Option<MV>) -> R) -> Result<R>;

    /// Returns whether a map key is there.
    ///
    /// # Errors
    /// Those of the backend.
    fn contains(&mut self, key: &MK) -> Result<bool> {
        self.with(key, |value| value.is_some())
    }

    /// Removes a map key; returns whether it was there.
    ///
    /// # Errors
    /// Those of the backend.
    fn remove(&mut self, key: &MK) -> Result<bool>;

    /// Calls `f` for each entry until it returns an error.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    fn for_each(&mut self, f: impl FnMut(&MK, &MV) -> Result<()>) -> Result<()>;

    /// Goes through the entries, letting `f` change each value or drop the entry by returning false.
    ///
    /// # Errors
    /// Those of the backend.
    fn retain(&mut self, f: impl FnMut(&MK, &mut MV) -> bool) -> Result<()>;

    /// Returns the entries.
    ///
    /// # Errors
    /// Those of the backend.
    fn entries(&mut self) -> Result<Vec<(MK, MV)>>
    where
        MK: Clone,
        MV: Clone,
    {
        let mut entries = Vec::new();
        self.for_each(|key, value| {
            entries.push((key.clone(), value.clone()));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Returns whether there is no entry; expired entries that are still there count as entries.
    ///
    /// # Errors
    /// Those of the backend.
    fn is_empty(&mut self) -> Result<bool>;

    /// Removes all entries.
    ///
    /// # Errors
    /// Those of the backend.
    fn clear(&mut self) -> Result<()>;
}

/// A map per key and namespace, ordered by map key.
///
/// # Contract
/// - Visits go in ascending order of the map keys (`sorted_map::entries_come_in_order`).
/// - A range includes its start and excludes its end; one that ends before it starts is empty
///   (`sorted_map::a_range_includes_its_start_and_excludes_its_end`, `sorted_map::removing_a_range_leaves_the_rest`).
/// - First and last are of what is there and not expired (`sorted_map::first_and_last_are_the_ends`,
///   `ttl::sorted_map_entries_expire_one_by_one`).
pub trait SortedMapAccess<MK, MV>: MapAccess<MK, MV> {
    /// Calls `f` in ascending order for each entry from `from` (included) to `to` (excluded), either open if `None`.
    ///
    /// # Errors
    /// Those of `f` and of the backend.
    fn range(
        &mut self,
        from: Option<&MK>,
        to: Option<&MK>,
        f: impl FnMut(&MK, &MV) -> Result<()>,
    ) -> Result<()>;

    /// Returns the entry with the smallest map key.
    ///
    /// # Errors
    /// Those of the backend.
    fn first(&mut self) -> Result<Option<(MK, MV)>>;

    /// Returns the entry with the greatest map key.
    ///
    /// # Errors
    /// Those of the backend.
    fn last(&mut self) -> Result<Option<(MK, MV)>>;

    /// Removes all entries from `from` (included) to `to` (excluded).
    ///
    /// # Errors
    /// Those of the backend.
    fn remove_range(&mut self, from: Option<&MK>, to: Option<&MK>) -> Result<()>;
}

/// A state into which inputs are merged: reducing (`In` = `Out`) and aggregating.
///
/// # Contract
/// - Without inputs there is no result (`merging::nothing_added_gives_none`).
/// - Inputs are merged in the order in which they are added (`merging::inputs_are_reduced_key_by_key`,
///   `merging::inputs_are_folded_into_one_accumulator`).
/// - A merge function that fails leaves the state as it was (`merging::a_failing_function_leaves_the_value`,
///   `merging::a_failing_merge_leaves_all_namespaces`).
pub trait MergeAccess<In, Out> {
    /// Adds an input.
    ///
    /// # Errors
    /// Those of the merge function and of the backend.
    fn add(&mut self, input: In) -> Result<()>;

    /// Returns the result, or `None` if nothing was added.
    ///
    /// # Errors
    /// Those of the backend.
    fn get(&mut self) -> Result<Option<Out>>;

    /// Removes what was added.
    ///
    /// # Errors
    /// Those of the backend.
    fn clear(&mut self) -> Result<()>;
}

/// Folds inputs into an accumulator; the logic of an aggregating state.
pub trait Aggregator: Clone + Send + Sync + 'static {
    /// What is added.
    type In;
    /// What is stored.
    type Acc: crate::StateType;
    /// What is read.
    type Out;

    /// Returns an empty accumulator.
    fn create(&self) -> Self::Acc;

    /// Adds an input.
    ///
    /// One that fails must leave `acc` as it was: an accumulator that owns heap memory is changed in place, not in a copy.
    ///
    /// # Errors
    /// Any; the stored accumulator stays as it was.
    fn add(&self, acc: &mut Self::Acc, input: Self::In) -> Result<()>;

    /// Adds another accumulator, for merging namespaces.
    ///
    /// # Errors
    /// Any; the stored accumulators stay as they were.
    fn merge(&self, acc: &mut Self::Acc, other: Self::Acc) -> Result<()>;

    /// Returns the result of an accumulator.
    fn result(&self, acc: &Self::Acc) -> Self::Out;
}
