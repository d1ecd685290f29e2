//! PURE. The name of an informer in a set.

use std::fmt;
use std::sync::Arc;

/// The name of an informer in a set: the kind of its objects, and a selection of them. Cheap to clone.
///
/// # Examples
/// ```
/// use flyball_informer_cache::InformerName;
///
/// let name = InformerName::new("pods").with_selection("app=web");
/// assert_eq!(name.to_string(), "pods (app=web)");
/// assert_ne!(name, InformerName::from("pods"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InformerName {
    kind: Arc<str>,
    selection: Arc<str>,
}

impl InformerName {
    /// Creates the name of an informer that has all objects of a kind.
    pub fn new(kind: impl Into<Arc<str>>) -> Self {
        Self { kind: kind.into(), selection: "".into() }
    }

    /// Sets the selection, which may be any string, for example a selector or a namespace. An empty string means all objects.
    #[must_use]
    pub fn with_selection(self, selection: impl Into<Arc<str>>) -> Self {
        Self { selection: selection.into(), ..self }
    }
}

impl From<&str> for InformerName {
    fn from(kind: &str) -> Self {
        Self::new(kind)
    }
}

impl From<&Self> for InformerName {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

impl fmt::Display for InformerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.selection {
            "" => f.write_str(&self.kind),
            selection => write!(f, "{} ({selection})", self.kind),
        }
    }
}
