//! PURE. The functions with which a store reads its objects.

mod key;
mod version;

use std::fmt;

pub use self::key::NamespacedName;
pub use self::version::Version;

/// The functions with which a store reads the key and the version of an object, and compares the identity and the content of two objects.
///
/// All of them are function pointers. The store calls them while it holds none of its locks. (A [`SharedWriter`](crate::SharedWriter) calls some of
/// them under its own lock.) The functions must be pure: two calls with the same arguments return the same result.
///
/// Without [`with_identity`](Self::with_identity), two objects with the same key always count as two states of one object.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Version};
///
/// struct Pod { name: String, uid: u64, version: u64 }
///
/// const PODS: Schema<String, Pod> = Schema::new(|pod: &Pod| pod.name.clone(), |pod| Version::new(pod.version))
///     .with_identity(|a, b| a.uid == b.uid);
///
/// let pod = Pod { name: "a".into(), uid: 1, version: 7 };
/// assert_eq!(PODS.key(&pod), "a");
/// assert_eq!(PODS.version(&pod), Version::new(7));
/// assert!(!PODS.same_identity(&pod, &Pod { name: "a".into(), uid: 2, version: 9 }));
/// ```
pub struct Schema<K, V> {
    key: fn(&V) -> K,
    version: fn(&V) -> Version,
    same: fn(&V, &V) -> bool,
    equal: fn(&V, &V) -> bool,
}

impl<K, V> Schema<K, V> {
    /// Creates a schema from the functions that return the key and the version of an object. If the source has no versions, the second function
    /// returns [`Version::ZERO`].
    #[must_use]
    pub const fn new(key: fn(&V) -> K, version: fn(&V) -> Version) -> Self {
        Self { key, version, same: |_, _| true, equal: |_, _| true }
    }

    /// Sets the function that returns whether two objects with the same key are two states of one object. It must return `false` if one object was
    /// deleted and the other was created later under the same key. For Kubernetes objects, compare the `uid`s.
    #[must_use]
    pub const fn with_identity(mut self, same: fn(&V, &V) -> bool) -> Self {
        self.same = same;
        self
    }

    /// Sets the function that returns whether two objects with the same key and version have the same content. By default, such objects count as
    /// equal.
    ///
    /// A source may return different content for the same version. For example, a Kubernetes API server applies the current defaults of a custom
    /// resource, and converts the resource to the requested API version, on each read. A watch does not deliver such a change, but a list contains
    /// it. Every relist (for example, after the version of a watch has expired) calls the function for each object whose listed version equals the
    /// stored version, and replaces the stored object if the function returns `false`. So a relist calls the function at most once per listed object,
    /// and a watch event never calls it. The function receives the objects after the [transformation](crate::StoreBuilder::transform).
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let schema = Schema::new(|website: &(&str, u64, u32)| website.0, |website| Version::new(website.1));
    /// let mut trusting = Store::builder(schema).build()?;
    /// let mut comparing = Store::builder(schema.with_content_eq(|a, b| a == b)).build()?;
    /// for store in [&mut trusting, &mut comparing] {
    ///     store.replace([("blog", 7, 1)], Version::new(7));
    ///     // The server has a new default, two replicas. No client has written the object.
    ///     store.replace([("blog", 7, 2)], Version::new(9));
    /// }
    /// assert_eq!(trusting.get("blog").unwrap().2, 1);
    /// assert_eq!(comparing.get("blog").unwrap().2, 2);
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub const fn with_content_eq(mut self, equal: fn(&V, &V) -> bool) -> Self {
        self.equal = equal;
        self
    }

    /// Returns the key of an object.
    #[must_use]
    pub fn key(&self, object: &V) -> K {
        (self.key)(object)
    }

    /// Returns the version of an object.
    #[must_use]
    pub fn version(&self, object: &V) -> Version {
        (self.version)(object)
    }

    /// Returns whether two objects with the same key are two states of one object.
    #[must_use]
    pub fn same_identity(&self, a: &V, b: &V) -> bool {
        (self.same)(a, b)
    }

    /// Returns whether two objects with the same key and version have the same content.
    pub(crate) fn content_eq(&self, a: &V, b: &V) -> bool {
        (self.equal)(a, b)
    }
}

// `Copy` and `Clone` are not derived, because a derive would require `K: Copy` and `V: Copy`; function pointers are `Copy` for all types.

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
