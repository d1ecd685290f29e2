//! PURE. A ready-made key type: a name, with or without a namespace.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use crate::ParseNamespacedNameError;

/// The key of a named object: `namespace/name`, or only `name` for an object without a namespace.
///
/// The key is a shared string: cloning it increments one reference count, and a store with these keys can be queried by `&str`. Keys are compared and
/// hashed as strings.
///
/// # Examples
/// ```
/// use flyball_informer_cache::NamespacedName;
///
/// let key: NamespacedName = "kube-system/coredns".parse()?;
/// assert_eq!((key.namespace(), key.name()), (Some("kube-system"), "coredns"));
/// assert_eq!(key, NamespacedName::new("kube-system", "coredns")?);
/// assert_eq!(key.to_string(), "kube-system/coredns");
///
/// let node = NamespacedName::cluster_scoped("node-7")?;
/// assert_eq!((node.namespace(), node.name()), (None, "node-7"));
///
/// for bad in ["", "/name", "namespace/", "a/b/c"] {
///     assert!(bad.parse::<NamespacedName>().is_err());
/// }
/// # Ok::<(), flyball_informer_cache::ParseNamespacedNameError>(())
/// ```
#[derive(Clone)]
pub struct NamespacedName {
    text: Arc<str>,
    /// The byte offset of the name in `text`: 0, or the offset after the slash. It follows from `text`, so comparisons ignore it.
    name_at: usize,
}

impl NamespacedName {
    /// Creates the key `namespace/name`.
    ///
    /// # Errors
    /// Returns an error if either part is empty or contains a slash.
    pub fn new(namespace: &str, name: &str) -> Result<Self, ParseNamespacedNameError> {
        let key: Self = format!("{namespace}/{name}").parse()?;
        debug_assert_eq!((key.namespace(), key.name()), (Some(namespace), name));
        Ok(key)
    }

    /// Creates the key of an object that has no namespace.
    ///
    /// # Errors
    /// Returns an error if the name is empty or contains a slash.
    pub fn cluster_scoped(name: &str) -> Result<Self, ParseNamespacedNameError> {
        match name.contains('/') {
            true => Err(ParseNamespacedNameError::slash_in_name(name)),
            false => name.parse(),
        }
    }

    /// Returns the namespace, if there is one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.name_at.checked_sub(1).map(|slash| &self.text[..slash])
    }

    /// Returns the name of the object, without the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[self.name_at..]
    }

    /// Returns the whole key, `namespace/name` or `name`.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::NamespacedName;
    ///
    /// let key = NamespacedName::new("default", "web")?;
    /// assert_eq!(key.as_str(), "default/web");
    /// # Ok::<(), flyball_informer_cache::ParseNamespacedNameError>(())
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for NamespacedName {
    type Err = ParseNamespacedNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name_at = match text.split_once('/') {
            None if text.is_empty() => return Err(ParseNamespacedNameError::empty(text)),
            None => 0,
            Some(("", _)) => return Err(ParseNamespacedNameError::empty_namespace(text)),
            Some((_, "")) => return Err(ParseNamespacedNameError::empty_name(text)),
            Some((_, name)) if name.contains('/') => {
                return Err(ParseNamespacedNameError::too_many_parts(text));
            }
            Some((namespace, _)) => namespace.len() + 1,
        };
        Ok(Self { text: text.into(), name_at })
    }
}

impl TryFrom<&str> for NamespacedName {
    type Error = ParseNamespacedNameError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Borrow<str> for NamespacedName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for NamespacedName {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

// These implementations use only `text`, because `Borrow<str>` requires that a key compares and hashes like its string.

impl PartialEq for NamespacedName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NamespacedName {}

impl Hash for NamespacedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for NamespacedName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamespacedName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}
