//! PURE. The index of owner references.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::state::dependents::waits;
use crate::state::metadata;

/// The kind and the key of an object.
pub(crate) type Place = (usize, String);

/// The index of owner references, and the objects that garbage collection must check.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The dependents by the owner's uid.
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// Objects whose owners must be checked, because an owner or the object itself has changed.
    pub(crate) due: BTreeSet<Place>,
    /// Objects that are being deleted and wait for their dependents.
    pub(crate) waiting: BTreeSet<Place>,
}

impl Owners {
    /// Records a write of an object.
    pub(crate) fn observe(
        &mut self,
        kind_id: usize,
        key: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let place = (kind_id, key.to_owned());
        let owners = |object: Option<&Value>| -> BTreeSet<String> {
            let references = object.map(metadata::references).unwrap_or_default();
            references.iter().filter_map(|owner| owner["uid"].as_str()).map(str::to_owned).collect()
        };
        let (old, new) = (owners(before), owners(after));
        for uid in old.difference(&new) {
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for uid in new.difference(&old) {
            self.dependents.entry(uid.clone()).or_default().insert(place.clone());
        }
        if !new.is_empty() && (old != new || before.is_none()) {
            self.due.insert(place.clone());
        }
        let is_waiting = after.is_some_and(waits);
        if after.is_none() || is_waiting && !before.is_some_and(waits) {
            let uid = before.or(after).and_then(|object| metadata::text(object, "uid")).unwrap_or_default();
            self.due.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        }
        match is_waiting {
            true => drop(self.waiting.insert(place)),
            false => drop(self.waiting.remove(&place)),
        }
    }

    /// Returns all objects that name the object with this `uid` as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Marks every object that has an owner as due for a check.
    pub(crate) fn reconsider_all(&mut self) {
        self.due.extend(self.dependents.values().flatten().cloned());
    }
}
