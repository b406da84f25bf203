use std::time::Duration;

use crate::{Error, Result};

/// Says which accesses renew the time-to-live of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TtlUpdate {
    /// Creation and every write.
    #[default]
    OnCreateAndWrite,
    /// Reads too.
    OnReadAndWrite,
}

/// Says whether an expired entry that is still there can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TtlVisibility {
    /// An expired entry reads as absent.
    #[default]
    NeverReturnExpired,
    /// The read that finds an expired entry returns it once and removes it.
    ReturnExpiredIfNotCleanedUp,
}

/// How an incremental clean-up on live tables works through the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncrementalCleanup {
    /// Entries looked at per state access, at least 1.
    pub entries: usize,
    /// Whether each record looks at entries too, also when it touches no state.
    pub per_record: bool,
}

/// Time-to-live of a state: entries not written (or read) for this long are gone. Processing time only.
///
/// List elements and map entries expire one by one; reducing and aggregating states expire as a whole.
/// Rules as in Flink's `StateTtlConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlConfig {
    ttl_ms: i64,
    update: TtlUpdate,
    visibility: TtlVisibility,
    full_snapshot_cleanup: bool,
    background_cleanup: bool,
    incremental: IncrementalCleanup,
    compaction: bool,
}

impl TtlConfig {
    /// Creates a configuration with Flink's defaults: renewed on create and write, expired entries never returned,
    /// background clean-up of 5 entries per access, and whenever a store rewrites values.
    ///
    /// # Errors
    /// `InvalidArgument` when the duration is below one millisecond.
    pub fn new(ttl: Duration) -> Result<Self> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        if ttl_ms <= 0 {
            return Err(Error::invalid(format!(
                "time-to-live must be at least 1 ms, got {ttl:?}"
            )));
        }
        Ok(Self {
            ttl_ms,
            update: TtlUpdate::default(),
            visibility: TtlVisibility::default(),
            full_snapshot_cleanup: false,
            background_cleanup: true,
            incremental: IncrementalCleanup {
                entries: 5,
                per_record: false,
            },
            compaction: true,
        })
    }

    /// Sets which accesses renew an entry.
    #[must_use]
    pub fn update(mut self, update: TtlUpdate) -> Self {
        self.update = update;
        self
    }

    /// Sets whether expired entries can be seen.
    #[must_use]
    pub fn visibility(mut self, visibility: TtlVisibility) -> Self {
        self.visibility = visibility;
        self
    }

    /// Drops expired entries while a full snapshot is written; the local state keeps them.
    #[must_use]
    pub fn cleanup_full_snapshot(mut self) -> Self {
        self.full_snapshot_cleanup = true;
        self
    }

    /// Sets how live tables look for expired entries in the background.
    ///
    /// # Errors
    /// `InvalidArgument` when `entries` is 0.
    pub fn cleanup_incrementally(mut self, entries: usize, per_record: bool) -> Result<Self> {
        if entries == 0 {
            return Err(Error::invalid(
                "incremental clean-up must look at 1 entry or more per access",
            ));
        }
        self.background_cleanup = true;
        self.incremental = IncrementalCleanup {
            entries,
            per_record,
        };
        Ok(self)
    }

    /// Sets whether stores that rewrite values now and then, as RocksDB does when it compacts files, leave expired ones out. They
    /// do unless told otherwise.
    #[must_use]
    pub fn cleanup_in_compaction(mut self, on: bool) -> Self {
        self.compaction = on;
        if on {
            self.background_cleanup = true;
        }
        self
    }

    /// Switches background clean-up off: expired entries go only when they are read.
    #[must_use]
    pub fn without_background_cleanup(mut self) -> Self {
        self.background_cleanup = false;
        self
    }

    /// Returns the duration in milliseconds.
    #[must_use]
    pub fn ttl_ms(&self) -> i64 {
        self.ttl_ms
    }

    /// Returns whether a read renews the entry.
    #[must_use]
    pub fn renews_on_read(&self) -> bool {
        self.update == TtlUpdate::OnReadAndWrite
    }

    /// Returns whether an expired entry is returned once before it is removed.
    #[must_use]
    pub fn returns_expired(&self) -> bool {
        self.visibility == TtlVisibility::ReturnExpiredIfNotCleanedUp
    }

    /// Returns whether full snapshots leave expired entries out.
    #[must_use]
    pub fn cleans_full_snapshots(&self) -> bool {
        self.full_snapshot_cleanup
    }

    /// Returns the background clean-up of live tables, if any.
    #[must_use]
    pub fn incremental_cleanup(&self) -> Option<IncrementalCleanup> {
        self.background_cleanup.then_some(self.incremental)
    }

    /// Returns whether expired entries are left out when a store rewrites values.
    #[must_use]
    pub fn cleans_in_compaction(&self) -> bool {
        self.background_cleanup && self.compaction
    }

    /// Returns whether an entry last renewed at `last_access_ms` is expired at `now_ms`.
    ///
    /// The boundary belongs to expiry: `last + ttl <= now`; the sum saturates.
    #[must_use]
    pub fn is_expired(&self, last_access_ms: i64, now_ms: i64) -> bool {
        last_access_ms.saturating_add(self.ttl_ms) <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn k_177_k_178_expiry_includes_the_boundary_and_never_wraps() {
        let ttl = TtlConfig::new(Duration::from_millis(100)).unwrap();
        assert!(!ttl.is_expired(50, 149));
        assert!(ttl.is_expired(50, 150));
        let forever = TtlConfig::new(Duration::from_secs(u64::MAX)).unwrap();
        assert_eq!(forever.ttl_ms(), i64::MAX);
        assert!(!forever.is_expired(10, 50));
    }

    #[test]
    fn k_194_to_k_197_bad_settings_are_refused_and_the_defaults_are_flinks() {
        assert_eq!(
            TtlConfig::new(Duration::ZERO).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        let ttl = TtlConfig::new(Duration::from_secs(1)).unwrap();
        assert_eq!(
            ttl.cleanup_incrementally(0, false).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            ttl.incremental_cleanup(),
            Some(IncrementalCleanup {
                entries: 5,
                per_record: false
            })
        );
        assert!(ttl.cleans_in_compaction());
        assert!(!ttl.cleanup_in_compaction(false).cleans_in_compaction());
        let only_full = ttl.without_background_cleanup().cleanup_full_snapshot();
        assert_eq!(only_full.incremental_cleanup(), None);
        assert!(!only_full.cleans_in_compaction());
        assert!(only_full.cleans_full_snapshots());
    }
}
