//! Backends that are broken on purpose: the suite must find each fault, else its rules prove nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use backend_testkit::model::{self, Settings};
use backend_testkit::{ByteBackend, LiveBackend, Mode, ReferenceStore, Suite, store_rules};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use managed_state::format::{CANONICAL, FrozenTablesSnapshot, load_tables, persist_groups};
use state_api::{
    BackendFactory, BatchEntry, ByteStore, ByteView, Column, FrozenTables, KeyedHandle,
    LiveSnapshots, LoadTables, Page, PersistContext, RestoreContext, Result, Snapshot,
    SnapshotRequest, WriteBatch,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StoreBug {
    MergeReplaces,
    DeleteKeeps,
    RangesIncludeTheirEnd,
    PagesAreShort,
    BatchesAreReversed,
    ViewsAreEmpty,
    EmptyValuesAreLost,
}

struct BrokenStore {
    inner: ReferenceStore,
    bug: StoreBug,
}

impl BrokenStore {
    fn end(&self, end: Option<&[u8]>) -> Option<Vec<u8>> {
        let mut end = end?.to_vec();
        if self.bug == StoreBug::RangesIncludeTheirEnd {
            end.push(0);
        }
        Some(end)
    }
}

impl ByteStore for BrokenStore {
    fn open_column(&mut self, name: &str) -> Result<Column> {
        self.inner.open_column(name)
    }

    fn column_names(&self) -> Vec<String> {
        self.inner.column_names()
    }

    fn get(&self, column: Column, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.get(column, key, value)
    }

    fn put(&mut self, column: Column, key: &[u8], value: &[u8]) -> Result<()> {
        if self.bug == StoreBug::EmptyValuesAreLost && value.is_empty() {
            return self.inner.delete(column, key);
        }
        self.inner.put(column, key, value)
    }

    fn merge(&mut self, column: Column, key: &[u8], operand: &[u8]) -> Result<()> {
        if self.bug == StoreBug::MergeReplaces {
            return self.inner.put(column, key, operand);
        }
        self.inner.merge(column, key, operand)
    }

    fn delete(&mut self, column: Column, key: &[u8]) -> Result<()> {
        if self.bug == StoreBug::DeleteKeeps {
            Ok(())
        } else {
            self.inner.delete(column, key)
        }
    }

    fn delete_range(&mut self, column: Column, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        self.inner
            .delete_range(column, start, self.end(end).as_deref())
    }

    fn write(&mut self, mut batch: WriteBatch) -> Result<()> {
        if self.bug == StoreBug::BatchesAreReversed {
            batch.entries.reverse();
        }
        if self.bug == StoreBug::DeleteKeeps {
            batch
                .entries
                .retain(|entry| !matches!(entry, BatchEntry::Delete(..)));
        }
        self.inner.write(batch)
    }

    fn scan(
        &self,
        column: Column,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        page: &mut Page,
    ) -> Result<()> {
        // A page that is short before the end of its range looks like the end.
        let limit = if self.bug == StoreBug::PagesAreShort {
            limit.min(100)
        } else {
            limit
        };
        ByteStore::scan(
            &self.inner,
            column,
            start,
            self.end(end).as_deref(),
            limit,
            page,
        )
    }

    fn view(&mut self) -> Result<Box<dyn ByteView>> {
        if self.bug == StoreBug::ViewsAreEmpty {
            let mut empty = ReferenceStore::new();
            for name in self.inner.column_names() {
                empty.open_column(&name)?;
            }
            return Ok(Box::new(empty));
        }
        self.inner.view()
    }
}

const STORE_BUGS: [StoreBug; 7] = [
    StoreBug::MergeReplaces,
    StoreBug::DeleteKeeps,
    StoreBug::RangesIncludeTheirEnd,
    StoreBug::PagesAreShort,
    StoreBug::BatchesAreReversed,
    StoreBug::ViewsAreEmpty,
    StoreBug::EmptyValuesAreLost,
];

fn fails(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

/// Returns the rules that a backend breaks, of some areas or of all.
fn broken_rules(factory: &Arc<dyn BackendFactory>, areas: &[&str]) -> Vec<&'static str> {
    let rules = Suite::rules()
        .into_iter()
        .filter(|rule| areas.is_empty() || areas.contains(&rule.area));
    let breaks = |rule: &backend_testkit::Rule| {
        rule.modes
            .iter()
            .any(|mode: &Mode| fails(|| rule.run(Arc::clone(factory), *mode)))
    };
    rules.filter(breaks).map(|rule| rule.name).collect()
}

#[test]
fn every_bug_of_a_store_breaks_a_rule_of_stores() {
    type StoreRule = fn(store_rules::Make<'_>);
    let rules: [StoreRule; 6] = [
        store_rules::the_last_put_wins,
        store_rules::merging_appends,
        store_rules::ranges_include_their_start_and_exclude_their_end,
        store_rules::scans_come_in_order_page_by_page,
        store_rules::a_batch_is_applied_in_order,
        store_rules::a_view_never_sees_a_later_write,
    ];
    for bug in STORE_BUGS {
        let make = || {
            Box::new(BrokenStore {
                inner: ReferenceStore::new(),
                bug,
            }) as Box<dyn ByteStore>
        };
        assert!(
            rules.iter().any(|rule| fails(|| rule(&make))),
            "{bug:?} goes unnoticed"
        );
        let random = || store_rules::random_operations_give_what_a_sorted_map_gives(&make);
        // Random stores are smaller than a page.
        assert!(
            bug == StoreBug::PagesAreShort || fails(random),
            "{bug:?} goes unnoticed by random operations"
        );
    }
}

#[test]
fn every_bug_of_a_store_breaks_a_rule_of_backends() {
    for (bug, rule) in [
        (StoreBug::MergeReplaces, "elements_keep_their_order"),
        (StoreBug::DeleteKeeps, "modifying_to_none_clears"),
        (StoreBug::PagesAreShort, "retaining_sees_each_entry_once"),
        (
            StoreBug::ViewsAreEmpty,
            "each_restore_shows_its_own_snapshot",
        ),
        (
            StoreBug::EmptyValuesAreLost,
            "values_of_any_shape_come_back",
        ),
    ] {
        let make = move |_: &_| {
            Ok(Box::new(BrokenStore {
                inner: ReferenceStore::new(),
                bug,
            }) as Box<dyn ByteStore>)
        };
        let factory: Arc<dyn BackendFactory> = Arc::new(ByteBackend::new("broken", make));
        let broken = broken_rules(&factory, &["value", "list", "map", "snapshot"]);
        assert!(broken.contains(&rule), "{bug:?} breaks only {broken:?}");
        // Random maps are smaller than a page.
        if bug != StoreBug::PagesAreShort {
            let model = || {
                model::run(
                    &[Arc::clone(&factory)],
                    Settings {
                        cases: 30,
                        ..Settings::from_env()
                    },
                )
            };
            assert!(fails(model), "{bug:?} goes unnoticed by the model");
        }
    }
}

/// What is wrong with a strategy for live tables.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StrategyBug {
    RestoresTheFirstHandleOnly,
    EncodesWhenItIsCut,
    CallsDamageNothing,
    HidesFailures,
    LosesTheLastGroup,
}

struct BrokenSnapshots(StrategyBug);

struct BrokenSnapshot {
    tables: Box<dyn FrozenTables>,
    bug: StrategyBug,
}

impl Snapshot<Vec<KeyedHandle>> for BrokenSnapshot {
    fn persist(
        self: Box<Self>,
        cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(async move {
            let written = persist_groups(self.tables, CANONICAL, cx).await;
            match self.bug {
                StrategyBug::HidesFailures => Ok(written.unwrap_or_default()),
                _ => written,
            }
        })
    }
}

/// Tables of which the last group is not written.
struct WithoutLastGroup(Box<dyn FrozenTables>);

impl FrozenTables for WithoutLastGroup {
    fn range(&self) -> state_api::KeyGroupRange {
        self.0.range()
    }

    fn encode_group(&mut self, group: state_api::KeyGroup, out: &mut Vec<u8>) -> Result<()> {
        if group == self.0.range().end() {
            Ok(())
        } else {
            self.0.encode_group(group, out)
        }
    }

    fn states(&self) -> Vec<state_api::StateSummary> {
        self.0.states()
    }

    fn changes(
        &mut self,
        since: state_api::CheckpointId,
    ) -> Option<Box<dyn state_api::FrozenChanges>> {
        self.0.changes(since)
    }
}

/// A snapshot whose work was done before it was asked for.
struct Encoded;

impl Snapshot<Vec<KeyedHandle>> for Encoded {
    fn persist(
        self: Box<Self>,
        _cx: PersistContext,
    ) -> BoxFuture<'static, Result<Vec<KeyedHandle>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl LiveSnapshots for BrokenSnapshots {
    fn snapshot(
        &mut self,
        _request: &SnapshotRequest,
        mut tables: Box<dyn FrozenTables>,
    ) -> Result<Box<dyn Snapshot<Vec<KeyedHandle>>>> {
        match self.0 {
            StrategyBug::EncodesWhenItIsCut => {
                for group in tables.range().iter() {
                    tables.encode_group(group, &mut Vec::new())?;
                }
                Ok(Box::new(Encoded))
            }
            StrategyBug::LosesTheLastGroup => Ok(Box::new(FrozenTablesSnapshot::new(
                Box::new(WithoutLastGroup(tables)),
                CANONICAL,
            ))),
            bug => Ok(Box::new(BrokenSnapshot { tables, bug })),
        }
    }

    fn restore<'a>(
        &'a mut self,
        handles: &'a [KeyedHandle],
        cx: &'a RestoreContext,
        tables: &'a mut dyn LoadTables,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.0 {
                StrategyBug::RestoresTheFirstHandleOnly => {
                    load_tables(&handles[..handles.len().min(1)], CANONICAL, cx, tables).await
                }
                StrategyBug::CallsDamageNothing => {
                    // What can't be read is taken for nothing.
                    load_tables(handles, CANONICAL, cx, tables).await.or(Ok(()))
                }
                _ => load_tables(handles, CANONICAL, cx, tables).await,
            }
        })
    }
}

#[test]
fn every_bug_of_a_strategy_breaks_a_rule() {
    for (bug, area, rule) in [
        (
            StrategyBug::RestoresTheFirstHandleOnly,
            "snapshot",
            "rescaling_moves_each_key_to_its_owner",
        ),
        (
            StrategyBug::EncodesWhenItIsCut,
            "isolation",
            "the_cut_leaves_the_work_to_the_async_part",
        ),
        (
            StrategyBug::CallsDamageNothing,
            "faults",
            "damaged_bytes_are_never_restored_as_state",
        ),
        (
            StrategyBug::HidesFailures,
            "faults",
            "a_failing_store_fails_the_snapshot_alone",
        ),
        (
            StrategyBug::LosesTheLastGroup,
            "routing",
            "each_key_is_in_exactly_one_subtask",
        ),
    ] {
        let factory: Arc<dyn BackendFactory> = Arc::new(LiveBackend::new("broken", move |_| {
            Ok(Box::new(BrokenSnapshots(bug)) as Box<dyn LiveSnapshots>)
        }));
        let broken = broken_rules(&factory, &[area]);
        assert!(broken.contains(&rule), "{bug:?} breaks only {broken:?}");
    }
}
