//! Derives state types: schema, codecs, stable key hash, heap size.
