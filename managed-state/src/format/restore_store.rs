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
    let (dirty, handles): (Vec<KeyedHandle>, Vec<KeyedHandle>) = handles
        .iter()
        .cloned()
        .partition(|handle| handle.format() == WRITE_BACK);
    let handles = &handles[..];
    let format = store.native().map(|native| native.format().to_owned());
    let is_native = |handle: &KeyedHandle| Some(handle.format()) == format.as_deref();
    let mut columns = if handles.iter().any(is_native) {
        if !handles.iter().all(is_native) {
            return Err(Error::incompatible(
                "parts of the snapshot are in different formats",
            ));
        }
        let native = store
            .native()
            .ok_or_else(|| Error::bug("a format without native snapshots"))?;
        native.restore(handles, range, cx).await?
    } else {
        restore_into_store(handles, range, prefix_len, store, &*cx.storage).await?
    };
    restore_write_back(&dirty, range, prefix_len, store, &*cx.storage, &mut columns).await?;
    Ok(columns)
}
