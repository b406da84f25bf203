use std::fmt;

use state_api::{BackendContext, BackendFactory, ByteStore, KeyedBackend, LiveSnapshots, Result};

/// A factory out of a function that makes a live strategy: all that a test of a strategy needs.
pub struct LiveBackend<F> {
    name: String,
    make: F,
}

impl<F: Fn(&BackendContext) -> Result<Box<dyn LiveSnapshots>> + Send + Sync> LiveBackend<F> {
    /// Creates the factory.
    pub fn new(name: impl Into<String>, make: F) -> Self {
        Self {
            name: name.into(),
            make,
        }
    }
}

impl<F: Fn(&BackendContext) -> Result<Box<dyn LiveSnapshots>> + Send + Sync> BackendFactory
    for LiveBackend<F>
{
    fn name(&self) -> &str {
        &self.name
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        (self.make)(cx).map(KeyedBackend::Live)
    }
}

impl<F> fmt::Debug for LiveBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveBackend").field(&self.name).finish()
    }
}

/// A factory out of a function that makes a byte store: all that a test of a store needs.
pub struct ByteBackend<F> {
    name: String,
    make: F,
}

impl<F: Fn(&BackendContext) -> Result<Box<dyn ByteStore>> + Send + Sync> ByteBackend<F> {
    /// Creates the factory.
    pub fn new(name: impl Into<String>, make: F) -> Self {
        Self {
            name: name.into(),
            make,
        }
    }
}

impl<F: Fn(&BackendContext) -> Result<Box<dyn ByteStore>> + Send + Sync> BackendFactory
    for ByteBackend<F>
{
    fn name(&self) -> &str {
        &self.name
    }

    fn create(&self, cx: &BackendContext) -> Result<KeyedBackend> {
        (self.make)(cx).map(KeyedBackend::Bytes)
    }
}

impl<F> fmt::Debug for ByteBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByteBackend").field(&self.name).finish()
    }
}
