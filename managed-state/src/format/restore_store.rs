use state_api::{
    ByteStore, Column, Error, KeyGroupRange, KeyedHandle, RestoreContext, Result, StateMeta,
};

use super::restore::restore_into_store;
use super::write_back::{WRITE_BACK, restore_write_back};

/// Fills an empty byte store out of handles in its own format or in the canonical one, and out of the dirty entries of an object
/// cache beside them; returns the states by column, which is named as its state.
///
/// Stored keys start with the key group in `prefix_len` bytes.
///
/// # Errors
/// `Incompatible` for another format, for formats that are mixed, or when two handles contradict each other about a state;
/// `Corrupt`, naming the object, for bytes that are missing or damaged; those of store and storage.
pub async fn restore_store(
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    prefix_len: usize,
    store: &mut dyn ByteStore,
    cx: &RestoreContext,
) -> Result<Vec<(Column, StateMeta)>> {
    let (stored, dirty) = stored_and_dirty(handles);
    let mut columns = restore_stored(&stored, range, prefix_len, store, cx).await?;
    restore_write_back(&dirty, range, prefix_len, store, &*cx.storage, &mut columns).await?;
    Ok(columns)
}

/// Tells the handles of what was in a store from those of dirty entries of an object cache.
pub(crate) fn stored_and_dirty(handles: &[KeyedHandle]) -> (Vec<KeyedHandle>, Vec<KeyedHandle>) {
    let handles = handles.iter().cloned();
    handles.partition(|handle| handle.format() != WRITE_BACK)
}

/// Fills an empty byte store out of handles of what was in one, in its own format or in the canonical one.
pub(crate) async fn restore_stored(
    handles: &[KeyedHandle],
    range: KeyGroupRange,
    prefix_len: usize,
    store: &mut dyn ByteStore,
    cx: &RestoreContext,
) -> Result<Vec<(Column, StateMeta)>> {
    let format = store.native().map(|native| native.format().to_owned());
    let is_native = |handle: &KeyedHandle| Some(handle.format()) == format.as_deref();
    if !handles.iter().any(is_native) {
        return restore_into_store(handles, range, prefix_len, store, &*cx.storage).await;
    }
    if !handles.iter().all(is_native) {
        return Err(Error::incompatible(
            "parts of the snapshot are in different formats",
        ));
    }
    let native = store
        .native()
        .ok_or_else(|| Error::bug("a format without native snapshots"))?;
    native.restore(handles, range, cx).await
}
