//! PURE. What a key is.

use std::hash::Hash;

/// What a key must be able to do: any cheap-to-clone, hashable value. Implemented for all of them.
///
/// The queue clones a key once for each lease: free for ids and `Arc<str>`, an allocation for a `String`. `Eq` and
/// `Clone` run under the queue's lock and must not call back into it.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Key, Queue};
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash)]
/// struct ObjectRef {
///     namespace: String,
///     name: String,
/// }
///
/// fn queue_of<K: Key>(keys: impl IntoIterator<Item = K>) -> Queue<K> {
///     let queue = Queue::new();
///     queue.add_many(keys);
///     queue
/// }
///
/// let queue = queue_of([ObjectRef { namespace: "default".into(), name: "web".into() }]);
/// assert_eq!(queue.try_get()?.name, "web");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}
