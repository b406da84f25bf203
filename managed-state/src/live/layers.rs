use std::sync::Arc;

use state_api::StoredKey;

use super::layout::Address;
use super::part::Part;
use super::tables::Place;

/// Frozen layers that a region may have under its writable ones.
pub(crate) const MAX_FROZEN: usize = 3;

/// Shared layers of a region, oldest first. Without an allocation of its own, since freezing makes one per region.
pub(crate) struct Layers<K, N, V> {
    layers: [Option<Arc<Part<K, N, V>>>; MAX_FROZEN],
}

impl<K, N, V> Default for Layers<K, N, V> {
    fn default() -> Self {
        Self {
            layers: [const { None }; MAX_FROZEN],
        }
    }
}

impl<K, N, V> Clone for Layers<K, N, V> {
    fn clone(&self) -> Self {
        Self {
            layers: self.layers.clone(),
        }
    }
}

impl<K, N, V> Layers<K, N, V> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.layers
            .iter()
            .take_while(|layer| layer.is_some())
            .count()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.layers[0].is_none()
    }

    #[inline]
    pub(crate) fn get(&self, layer: usize) -> Option<&Part<K, N, V>> {
        self.layers.get(layer)?.as_deref()
    }

    /// Puts a layer on top of the others.
    ///
    /// # Panics
    /// If there are [`MAX_FROZEN`] already: callers check before they change anything.
    pub(crate) fn push(&mut self, layer: Arc<Part<K, N, V>>) {
        let len = self.len();
        self.layers[len] = Some(layer);
    }

    /// Takes the newest layer if nobody else holds it.
    pub(crate) fn pop_unshared(&mut self) -> Option<Part<K, N, V>> {
        let newest = self.len().checked_sub(1)?;
        match self.layers[newest].take().map(Arc::try_unwrap)? {
            Ok(part) => Some(part),
            Err(held) => {
                self.layers[newest] = Some(held);
                None
            }
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Part<K, N, V>> + Clone {
        self.layers.iter().filter_map(Option::as_deref)
    }
}

impl<K: Eq + Clone, N: Eq + Clone, V> Layers<K, N, V> {
    /// Finds the newest version of a key.
    pub(crate) fn find<Q>(&self, at: Address<'_, Q, N>) -> Option<(usize, Place)>
    where
        K: StoredKey<Q>,
    {
        for (layer, part) in self.layers.iter().enumerate().rev() {
            let Some(part) = part else { continue };
            if let Some(place) = part.find(at) {
                return Some((layer, place));
            }
            if part.is_dead(at) {
                return None;
            }
        }
        None
    }

    /// Says whether the layers show a key to what lies over them.
    pub(crate) fn show<Q>(&self, at: Address<'_, Q, N>) -> bool
    where
        K: StoredKey<Q>,
    {
        self.find(at).is_some()
    }
}
