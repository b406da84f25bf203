use std::fmt;
use std::sync::Arc;

use state_api::BackendFactory;

use crate::setup::{Mode, Setup, ok};

/// One rule of the contract, with the function that checks it.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The module of the function, such as `value`.
    pub area: &'static str,
    /// The name of the function: the rule as a sentence.
    pub name: &'static str,
    /// The modes in which it is run.
    pub modes: &'static [Mode],
    source: &'static str,
    run: fn(&Setup),
}

impl Rule {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        area: &'static str,
        name: &'static str,
        modes: &'static [Mode],
        source: &'static str,
        run: fn(&Setup),
    ) -> Self {
        Self {
            area,
            name,
            modes,
            source,
            run,
        }
    }

    /// Returns the documentation of the function: the rule in full, with the numbers of its cases.
    #[must_use]
    pub fn doc(&self) -> String {
        doc_of(self.source, self.name)
    }

    /// Returns the numbers of the cases of the conformance catalogue that the rule covers, such as 36 for K-036.
    #[must_use]
    pub fn cases(&self) -> Vec<u16> {
        cases_in(&self.doc())
    }

    /// Runs the rule against a backend in one mode.
    ///
    /// # Panics
    /// When the backend breaks the rule.
    pub fn run(&self, factory: Arc<dyn BackendFactory>, mode: Mode) {
        run(factory, mode, self.run);
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.area, self.name)
    }
}

/// Returns the documentation that stands above a function in a source text, on one line.
pub(crate) fn doc_of(source: &str, function: &str) -> String {
    let start = source.find(&format!("pub fn {function}(")).unwrap_or(0);
    let above: Vec<&str> = source[..start]
        .lines()
        .rev()
        .map_while(|line| line.strip_prefix("///"))
        .collect();
    above
        .iter()
        .rev()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Finds case numbers such as `K-036` in a text.
pub(crate) fn cases_in(text: &str) -> Vec<u16> {
    let digits = |part: &str| {
        part.chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    text.split("K-").skip(1).filter_map(digits).collect()
}

/// Runs a function as a rule: what the tests that [`conformance!`](crate::conformance) makes call.
///
/// # Panics
/// When the rule is broken.
pub fn run(factory: Arc<dyn BackendFactory>, mode: Mode, rule: fn(&Setup)) {
    rule(&ok(Setup::new(factory, mode)));
}

/// The contract of a backend: all rules.
#[derive(Clone, Copy, Debug)]
pub struct Suite;

impl Suite {
    /// Returns all rules, by area.
    #[must_use]
    pub fn rules() -> Vec<Rule> {
        crate::__rules!([crate::__table] [])
    }

    /// Runs every rule in every mode that it is for.
    ///
    /// # Panics
    /// When the backend breaks a rule; the message says which.
    pub fn run(factory: &Arc<dyn BackendFactory>) {
        for rule in Self::rules() {
            for mode in rule.modes {
                rule.run(Arc::clone(factory), *mode);
            }
        }
    }
}

/// Modes of rules that take their snapshots themselves.
#[doc(hidden)]
pub const RESTORING: &[Mode] = &[
    Mode::Restored,
    Mode::Savepoint,
    Mode::ScaledUp,
    Mode::ScaledDown,
];

/// Modes of rules that do all there is to do in one run.
#[doc(hidden)]
pub const ONCE: &[Mode] = &[Mode::Direct];

#[doc(hidden)]
pub const EVERY: &[Mode] = &Mode::ALL;

/// The table of all rules, handed to another macro: area, modes, names.
#[doc(hidden)]
#[macro_export]
macro_rules! __rules {
    ([$($callback:tt)*] [$($arguments:tt)*]) => {
        $($callback)*! { [$($arguments)*]
            routing EVERY {
                each_key_is_in_exactly_one_subtask
                a_key_of_another_subtask_is_refused
                many_key_groups_work_as_few_do
                a_single_key_group_holds_all_keys
                key_and_namespace_do_not_run_into_each_other
                long_and_empty_keys_are_keys_like_others
                keys_do_not_see_each_other
                namespaces_do_not_see_each_other
                keys_can_be_assigned_as_flink_does
                keys_asked_for_ahead_read_as_before
            }
            value EVERY {
                an_unset_value_reads_as_none
                the_last_set_wins
                modifying_to_none_clears
                modifying_stores_what_is_left
                a_default_is_read_but_never_stored
                a_default_is_not_shared_between_keys
                states_of_other_names_are_independent
                entries_are_counted
                clearing_nothing_changes_nothing
                values_of_any_shape_come_back
                a_name_is_registered_once
                a_foreign_token_is_refused
            }
            list EVERY {
                an_unset_list_is_empty
                elements_keep_their_order
                an_empty_list_is_no_list
                retaining_and_popping_leave_the_rest
                a_long_list_is_popped_and_appended_to
                a_long_list_is_shortened_replaced_and_cleared
                long_lists_of_namespaces_are_merged
                an_error_of_the_visitor_stops_the_visit
                elements_of_any_bytes_come_back
                merging_namespaces_moves_the_elements
                merged_elements_follow_the_order_of_namespaces
                a_list_may_be_written_while_it_is_visited
            }
            map EVERY {
                an_unset_map_is_empty
                a_map_is_a_map
                an_empty_map_is_no_map
                a_map_is_empty_when_its_last_entry_is_gone
                retaining_sees_each_entry_once
                a_map_may_be_written_while_it_is_visited
                an_error_of_the_visitor_ends_the_visit
                an_entry_with_the_value_none_is_there
                a_key_with_many_entries_is_one_key
                entries_of_neighbouring_keys_are_apart
                entries_read_twice_are_equal
            }
            sorted_map EVERY {
                entries_come_in_order
                a_range_includes_its_start_and_excludes_its_end
                first_and_last_are_the_ends
                removing_a_range_leaves_the_rest
                a_sorted_map_is_a_map
                map_keys_of_variable_length_are_in_order
                a_sorted_map_may_be_written_while_it_is_visited
            }
            merging EVERY {
                nothing_added_gives_none
                inputs_are_reduced_key_by_key
                inputs_are_folded_into_one_accumulator
                a_failing_function_leaves_the_value
                merging_namespaces_reduces_into_the_target
                merging_namespaces_merges_the_accumulators
                a_failing_merge_leaves_all_namespaces
            }
            keys EVERY {
                keys_of_a_namespace_come_once
                pairs_of_key_and_namespace_come_once
                an_unknown_state_has_no_keys
                a_namespace_of_another_type_is_refused
                a_state_may_be_cleared_while_its_keys_are_visited
                another_state_may_be_written_while_keys_are_visited
                an_error_while_keys_are_visited_is_handed_on
            }
            timers EVERY {
                setting_says_whether_the_earliest_changed
                a_timer_set_twice_fires_once
                timers_fire_in_order
                removing_says_whether_the_earliest_changed
                timers_fire_where_their_key_is
                sets_of_timers_are_independent
                many_timers_fire_as_a_sorted_set
            }
            ttl EVERY {
                a_far_expiry_changes_nothing
                expiry_counts_from_the_latest_write
                relaxed_visibility_shows_an_expired_value_once
                reads_renew_if_told_to
                reads_of_collections_renew_if_told_to
                map_entries_expire_one_by_one
                sorted_map_entries_expire_one_by_one
                list_elements_expire_one_by_one
                elements_of_a_long_list_expire_one_by_one
                merging_leaves_expired_values_out
                keys_and_namespaces_expire_on_their_own
                adding_to_an_expired_value_starts_anew
                a_restored_value_keeps_its_time
                a_new_duration_applies_to_old_times
                a_plain_state_may_get_a_time_to_live
                a_time_to_live_may_be_dropped
                savepoints_leave_expired_entries_out
                clean_up_spares_what_is_not_expired
            }
            snapshot RESTORING {
                each_restore_shows_its_own_snapshot
                nothing_written_restores_to_nothing
                state_that_is_not_touched_survives
                rescaling_moves_each_key_to_its_owner
                keys_outside_the_range_are_not_taken
                restoring_after_registration_is_refused
                a_snapshot_says_what_it_holds
                a_later_checkpoint_does_not_need_an_aborted_one
                a_savepoint_stands_alone
            }
            isolation RESTORING {
                a_snapshot_never_sees_a_later_write
                two_open_snapshots_are_each_right
                a_state_registered_during_a_snapshot_is_not_in_it
                the_cut_leaves_the_work_to_the_async_part
                a_dropped_snapshot_leaves_nothing
                open_snapshots_are_bounded_or_right
                checkpoints_leave_no_memory_behind
            }
            migration RESTORING {
                an_unchanged_type_is_read_as_it_is
                a_value_type_may_evolve
                the_codec_may_change
                elements_and_map_values_may_evolve
                a_timed_state_may_evolve
                an_incompatible_type_is_refused_at_registration
                a_refused_registration_leaves_the_state
                keys_never_migrate
                namespaces_never_migrate
                map_keys_never_migrate
                timers_never_migrate
                the_kind_of_a_state_stays
                the_order_of_registration_does_not_matter
            }
            canonical RESTORING {
                equal_state_gives_equal_savepoints
                a_job_moves_to_another_backend_and_back
                a_long_list_moves_to_another_backend_and_back
                a_state_without_entries_is_listed
                a_savepoint_is_in_the_canonical_format
            }
            faults ONCE {
                a_failing_store_fails_the_snapshot_alone
                damaged_bytes_are_never_restored_as_state
                a_damaged_or_missing_object_is_named
                a_failing_store_fails_the_restore
                a_hanging_snapshot_can_be_cancelled
                a_cancelled_snapshot_writes_nothing
                a_snapshot_ends_when_the_executor_is_shut_down
                a_memory_limit_refuses_the_write_alone
                a_memory_limit_that_refuses_a_merge_leaves_its_sources
            }
        }
    };
}

/// Makes the list of all rules out of the table.
#[doc(hidden)]
#[macro_export]
macro_rules! __table {
    ([] $($area:ident $modes:ident { $($rule:ident)* })*) => {{
        let mut rules = Vec::new();
        $({
            const SOURCE: &str = include_str!(concat!("rules/", stringify!($area), ".rs"));
            $(rules.push($crate::Rule::new(
                stringify!($area),
                stringify!($rule),
                $crate::suite::$modes,
                SOURCE,
                $crate::rules::$area::$rule,
            ));)*
        })*
        rules
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_sentence_and_names_its_cases() {
        for rule in Suite::rules() {
            let doc = rule.doc();
            assert!(
                doc.contains(". (K-") && doc.ends_with(')'),
                "{rule:?}: {doc:?}"
            );
            assert!(!rule.cases().is_empty(), "{rule:?}");
        }
        let rules = Suite::rules();
        let default = rules
            .iter()
            .find(|rule| rule.name == "a_default_is_read_but_never_stored")
            .unwrap();
        assert_eq!(default.cases(), [36]);
    }

    #[test]
    fn every_public_function_among_the_rules_is_in_the_table() {
        let rules = Suite::rules();
        let mut functions = 0;
        let mut areas: Vec<_> = rules.iter().map(|rule| rule.area).collect();
        areas.dedup();
        for area in areas {
            let source = rules.iter().find(|rule| rule.area == area).unwrap().source;
            for line in source
                .lines()
                .filter_map(|line| line.strip_prefix("pub fn "))
            {
                let name = line.split('(').next().unwrap();
                assert!(
                    rules
                        .iter()
                        .any(|rule| (rule.area, rule.name) == (area, name)),
                    "{area}::{name}"
                );
                functions += 1;
            }
        }
        assert_eq!(functions, rules.len());
    }
}
