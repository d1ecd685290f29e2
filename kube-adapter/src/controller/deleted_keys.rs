//! SHELL. The keys of objects that were deleted while they were reconciled.
//!
//! | guarded by | |
//! |---|---|
//! | `DeletedKeys` | the set of keys |

use std::collections::HashSet;

use flyball_informer_cache::NamespacedName;
use flyball_sync::locks::Mutex;

/// The keys whose objects were deleted during a reconcile, and which nothing has added since.
///
/// A reconcile may return a delay after its object was deleted. The queue cannot cancel that delay, because it does not know the delay before the
/// lease ends. So the deletion adds the key once more, which ends the delay, and stores the key here: the reconcile that the add causes has no result.
#[derive(Default)]
pub(crate) struct DeletedKeys(Mutex<HashSet<NamespacedName>>);

impl DeletedKeys {
    pub(crate) fn insert(&self, key: NamespacedName) {
        self.0.lock().insert(key);
    }

    /// Removes a key. Returns whether it was stored.
    pub(crate) fn remove(&self, key: &NamespacedName) -> bool {
        let mut keys = self.0.lock();
        // Hashes the key only if there is a key to remove, because this is called at each add and at each reconcile.
        !keys.is_empty() && keys.remove(key)
    }
}
