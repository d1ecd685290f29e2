//! A model of client-go's indexed store, with a switch for each intended difference of flyball.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Rule, Rules, StoreLine, StoreObject};

/// Executes a script for stores, line by line. client-go stores the objects in `items`, and in `indices`, for each index, a map from each value to
/// the keys that have this value. Each write calls every index function for the old and the new object. If the function fails, client-go panics in
/// the middle of the write. The state after such a panic can depend on the iteration order of a Go map. It does not if the store has one index and
/// the operation writes one object; the reference reproduces the state only in this case.
#[derive(Clone, Debug)]
pub struct ReferenceStore {
    rules: Rules,
    items: BTreeMap<String, StoreObject>,
    indices: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// The error if an index function fails for an object; client-go panics there.
struct Panicked;

impl ReferenceStore {
    /// Creates an empty store without an index.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, items: BTreeMap::new(), indices: BTreeMap::new() }
    }

    /// Executes a line and returns its answer. `None` stands for an invalid line.
    pub fn answer(&mut self, line: Option<&StoreLine>) -> Answer {
        let Some(line) = line else { return Answer::Error };
        let written = match line {
            StoreLine::Index(name) if self.indices.contains_key(name) => return Answer::Error,
            StoreLine::Index(name) => self.index(name),
            StoreLine::Upsert(key, object) => self.upsert(key, object),
            StoreLine::Delete(key) => self.delete(key),
            StoreLine::Replace(_, version)
                if self.rules.has(Rule::VersionsAreNumbers) && !is_number(version) =>
            {
                return Answer::Error;
            }
            StoreLine::Replace(items, _) => self.replace(items),
            StoreLine::Get(key) => {
                let object = self.items.get(key);
                return object.map_or(Answer::Absent, |object| Answer::Object(object.text.clone()));
            }
            StoreLine::Keys => return Answer::List(self.items.keys().cloned().collect()),
            StoreLine::ByIndex(name, value) => {
                let Some(index) = self.indices.get(name) else { return Answer::MissingIndex };
                return Answer::List(index.get(value).into_iter().flatten().cloned().collect());
            }
            StoreLine::Values(name) => {
                return match self.indices.get(name) {
                    None if self.rules.has(Rule::MissingIndexIsAnError) => Answer::MissingIndex,
                    index => Answer::List(index.into_iter().flat_map(BTreeMap::keys).cloned().collect()),
                };
            }
        };
        match written {
            Ok(()) => Answer::Done,
            Err(Panicked) => Answer::Error,
        }
    }

    /// Adds the index first and then indexes the stored objects. So the index is kept if its function panics.
    fn index(&mut self, name: &str) -> Result<(), Panicked> {
        self.indices.insert(name.to_owned(), BTreeMap::new());
        let items = self.items.clone();
        items.iter().try_for_each(|(key, object)| self.move_key(name, key, None, Some(object)))
    }

    /// Stores the object first and then updates the indexes. So the new object is kept if an index function panics.
    fn upsert(&mut self, key: &str, object: &StoreObject) -> Result<(), Panicked> {
        let old = self.items.insert(key.to_owned(), object.clone());
        self.update_indices(key, old.as_ref(), Some(object))
    }

    /// Updates all indexes first and then removes the object. So the object is kept if an index function panics.
    fn delete(&mut self, key: &str) -> Result<(), Panicked> {
        if let Some(old) = self.items.get(key).cloned() {
            self.update_indices(key, Some(&old), None)?;
            self.items.remove(key);
        }
        Ok(())
    }

    fn replace(&mut self, items: &BTreeMap<String, StoreObject>) -> Result<(), Panicked> {
        self.items.clone_from(items);
        self.indices.values_mut().for_each(BTreeMap::clear);
        items.iter().try_for_each(|(key, object)| self.update_indices(key, None, Some(object)))
    }

    fn update_indices(
        &mut self,
        key: &str,
        old: Option<&StoreObject>,
        new: Option<&StoreObject>,
    ) -> Result<(), Panicked> {
        let names: Vec<_> = self.indices.keys().cloned().collect();
        names.iter().try_for_each(|name| self.move_key(name, key, old, new))
    }

    fn move_key(
        &mut self,
        name: &str,
        key: &str,
        old: Option<&StoreObject>,
        new: Option<&StoreObject>,
    ) -> Result<(), Panicked> {
        let (old, new) = (self.values(name, old)?, self.values(name, new)?);
        let Some(index) = self.indices.get_mut(name) else { return Ok(()) };
        // If the old and the new object have the same single value, client-go does not update the index, because it assumes that the index already
        // contains the key under this value. After an earlier panic, this can be wrong.
        if old.len() == 1 && old == new {
            return Ok(());
        }
        for value in old {
            let keys = index.entry(value.clone()).or_default();
            keys.remove(key);
            if keys.is_empty() {
                index.remove(&value);
            }
        }
        for value in new {
            index.entry(value).or_default().insert(key.to_owned());
        }
        Ok(())
    }

    fn values(&self, name: &str, object: Option<&StoreObject>) -> Result<Vec<String>, Panicked> {
        match object.and_then(|object| object.members.get(name)) {
            None => Ok(Vec::new()),
            Some(Some(values)) => Ok(values.clone()),
            Some(None) if self.rules.has(Rule::IndexErrorIsAValue) => Ok(Vec::new()),
            Some(None) => Err(Panicked),
        }
    }
}

fn is_number(version: &str) -> bool {
    version.is_empty() || version.bytes().all(|byte| byte.is_ascii_digit()) && version.parse::<u64>().is_ok()
}
