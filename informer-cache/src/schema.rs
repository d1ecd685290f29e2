//! PURE. What a store has to know about its objects.

use std::fmt;

use crate::Version;

/// How a store reads the key, the version and the identity of an object.
///
/// Plain functions, called outside every lock. They must be pure: asked twice about one object, they answer the same.
///
/// Without [`identity`](Self::identity) two objects of one key are always the same object at two points in time.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Version};
///
/// struct Pod { name: String, uid: u64, version: u64 }
///
/// const PODS: Schema<String, Pod> = Schema::new(|pod: &Pod| pod.name.clone(), |pod| Version::new(pod.version))
///     .identity(|a, b| a.uid == b.uid);
///
/// let pod = Pod { name: "a".into(), uid: 1, version: 7 };
/// assert_eq!(PODS.key(&pod), "a");
/// assert_eq!(PODS.version(&pod), Version::new(7));
/// assert!(!PODS.same(&pod, &Pod { name: "a".into(), uid: 2, version: 9 }));
/// ```
pub struct Schema<K, V> {
    key: fn(&V) -> K,
    version: fn(&V) -> Version,
    same: fn(&V, &V) -> bool,
}

impl<K, V> Schema<K, V> {
    /// Objects with this key and version. A source without versions answers [`Version::ZERO`].
    #[must_use]
    pub const fn new(key: fn(&V) -> K, version: fn(&V) -> Version) -> Self {
        Self { key, version, same: |_, _| true }
    }

    /// Tells whether two objects of one key are the same object at two points in time, or one deleted and another
    /// one created under the same key. In Kubernetes: whether the `uid` is equal.
    #[must_use]
    pub const fn identity(mut self, same: fn(&V, &V) -> bool) -> Self {
        self.same = same;
        self
    }

    /// The key of an object.
    #[must_use]
    pub fn key(&self, object: &V) -> K {
        (self.key)(object)
    }

    /// The version of an object.
    #[must_use]
    pub fn version(&self, object: &V) -> Version {
        (self.version)(object)
    }

    /// Whether two objects of one key are one object at two points in time.
    #[must_use]
    pub fn same(&self, a: &V, b: &V) -> bool {
        (self.same)(a, b)
    }
}

// Not derived: function pointers are `Copy` whatever the objects are.

impl<K, V> Copy for Schema<K, V> {}

impl<K, V> Clone for Schema<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> fmt::Debug for Schema<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").finish_non_exhaustive()
    }
}
