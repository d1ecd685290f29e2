//! PURE. The bounds on keys.

use std::hash::Hash;

/// The bounds on a key: any hashable value that is cheap to clone. A blanket implementation covers all such types.
///
/// The queue clones the key once for each lease. The clone costs nothing for an integer id and little for an
/// `Arc<str>`; for a `String`, it allocates. `Eq` and `Clone` run under the queue's lock and must not call the queue.
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
