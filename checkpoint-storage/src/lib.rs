//! Where checkpoints live: streams, objects, metadata, publishing and retention over any object store.
