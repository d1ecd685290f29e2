//! PURE. What a key is.

use std::hash::Hash;

/// What a key must be able to do: any cheap-to-clone, hashable value. Implemented for all of them.
///
/// The queue clones a key once for each lease: free for ids and `Arc<str>`, an allocation for a `String`. `Eq` and
/// `Clone` run under the queue's lock and must not call back into it.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}
