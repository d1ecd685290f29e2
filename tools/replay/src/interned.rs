//! PURE. Interns strings, labels and keys, so that all objects share one copy of equal values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::objects::{Key, Labels};

#[derive(Debug, Default)]
pub(crate) struct Interned {
    texts: HashSet<Arc<str>>,
    labels: HashSet<Labels>,
    replicasets: HashMap<Arc<str>, Key>,
    services: HashMap<Arc<str>, Key>,
    /// The number of strings that remained after the last removal of unused strings.
    #[cfg(feature = "kube")]
    swept: usize,
}

impl Interned {
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// Returns `namespace/name`, or the name alone if the namespace is empty.
    pub(crate) fn name(&mut self, namespace: &str, name: &str) -> Arc<str> {
        if namespace.is_empty() { self.text(name) } else { self.text(&format!("{namespace}/{name}")) }
    }

    /// Interns labels as pairs sorted by name.
    pub(crate) fn labels<'a>(&mut self, pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let labels: Vec<_> = pairs.map(|(name, value)| (self.text(name), self.text(value))).collect();
        if let Some(known) = self.labels.get(&labels[..]) {
            return known.clone();
        }
        let new: Labels = labels.into();
        self.labels.insert(new.clone());
        new
    }

    pub(crate) fn replicaset(&mut self, name: Arc<str>) -> Key {
        key(&mut self.replicasets, name)
    }

    pub(crate) fn service(&mut self, name: Arc<str>) -> Key {
        key(&mut self.services, name)
    }

    /// Removes unused strings if the number of strings has doubled since the last removal. Without these removals, memory
    /// would grow during a run on a live cluster.
    #[cfg(feature = "kube")]
    pub(crate) fn sweep(&mut self) {
        const FEW: usize = 4096;
        if self.texts.len() < (2 * self.swept).max(FEW) {
            return;
        }
        // Keys and labels keep references to strings. They are removed first, so that the strings that only they used are removed, too.
        self.replicasets.retain(|_, key| key.is_shared());
        self.services.retain(|_, key| key.is_shared());
        self.labels.retain(|labels| Arc::strong_count(labels) > 1);
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.swept = self.texts.len();
    }
}

fn key(keys: &mut HashMap<Arc<str>, Key>, name: Arc<str>) -> Key {
    keys.entry(name.clone()).or_insert_with(|| Key::new(name)).clone()
}

#[cfg(all(test, feature = "kube"))]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_removes_exactly_the_unreferenced_values() {
        let mut interned = Interned::default();
        let held = interned.text("a/held");
        let (key, labels) = (interned.replicaset(held.clone()), interned.labels([("app", "x")].into_iter()));
        for number in 0..5000 {
            let name = interned.name("a", &number.to_string());
            interned.replicaset(name);
            interned.labels([("number", &*number.to_string())].into_iter());
        }
        interned.sweep();
        assert_eq!((interned.replicasets.len(), interned.labels.len()), (1, 1));
        assert_eq!(interned.texts.len(), 3, "{:?}", interned.texts);
        assert!(Arc::ptr_eq(&interned.text("a/held"), &held));
        assert!(Arc::ptr_eq(&interned.labels([("app", "x")].into_iter()), &labels));
        // Interning the name again returns the same key. So the times that a key stores are all in one place, not in two keys of the same name.
        assert!(interned.replicaset(held).is_shared() && key.is_shared());
        interned.text("new");
        interned.sweep();
        assert!(interned.texts.contains("new"), "it was swept before the number of strings doubled");
    }
}
