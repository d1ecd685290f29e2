//! An indexed store in client-go's terms, with a switch for each difference.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Rule, Rules, StoreLine, StoreObject};

/// Executes the lines of a script for stores.
///
/// client-go stores the objects in `items` and, for each index, the keys by value in `indices`. Each write calls the function of each index for the
/// old and the new object. If the function fails, client-go panics in the middle of the write. The reference reproduces the state after such a panic
/// only where it does not depend on the iteration order of a Go map: the store has one index, and the operation indexes one object.
#[derive(Clone, Debug)]
pub struct ReferenceStore {
    rules: Rules,
    items: BTreeMap<String, StoreObject>,
    indices: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// The index function failed for an object.
struct Panicked;

impl ReferenceStore {
    /// Creates an empty store without an index.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, items: BTreeMap::new(), indices: BTreeMap::new() }
    }

    /// Returns the answer to a line; `None` stands for an invalid line.
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

    /// Adds the index before it indexes the stored objects, so the index stays if its function panics.
    fn index(&mut self, name: &str) -> Result<(), Panicked> {
        self.indices.insert(name.to_owned(), BTreeMap::new());
        let items = self.items.clone();
        items.iter().try_for_each(|(key, object)| self.move_key(name, key, None, Some(object)))
    }

    /// Stores the object before it updates the indexes, so the object stays if an index function panics.
    fn upsert(&mut self, key: &str, object: &StoreObject) -> Result<(), Panicked> {
        let old = self.items.insert(key.to_owned(), object.clone());
        self.update_indices(key, old.as_ref(), Some(object))
    }

    /// Removes the object after it has updated all indexes, so the object stays if an index function panics.
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
        // client-go skips a single unchanged value, because it assumes that the value is indexed; after a panic, the index may lack the value.
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
