//! EDGE. Runs scripts on the store of `flyball-informer-cache`.

use flyball_informer_cache::{DuplicateIndex, MissingIndex, Schema, Snapshot, Store, Version, Writer};
use testkit::client_go::{Answer, StoreLine, StoreObject};

use crate::indexes::{self, ByName};

/// A stored object: an object of a script, and its key.
pub(crate) struct Object {
    key: String,
    pub(crate) object: StoreObject,
}

/// The objects of a script have no versions, so a write always replaces the stored object.
const OBJECTS: Schema<String, Object> = Schema::new(|object| object.key.clone(), |_| Version::ZERO);

/// A store that has no indexes at the start; the script adds them.
pub(crate) struct FlyballStore {
    store: Writer<String, Object>,
}

impl FlyballStore {
    pub(crate) fn new() -> Self {
        let store = Store::builder(OBJECTS).build().expect("a store without indexes");
        Self { store }
    }

    /// Returns the answer to a line. Pass `None` for an invalid line.
    pub(crate) fn answer(&mut self, line: Option<&StoreLine>) -> Answer {
        let Some(line) = line else { return Answer::Error };
        match line {
            StoreLine::Index(name) => match indexes::named(name).map(|index| self.store.add_index(&index)) {
                Some(Ok(())) => {}
                Some(Err(DuplicateIndex { .. })) | None => return Answer::Error,
            },
            StoreLine::Upsert(key, object) => {
                self.store.upsert(Object { key: key.clone(), object: object.clone() });
            }
            StoreLine::Delete(key) => {
                self.store.delete(key, None);
            }
            StoreLine::Replace(items, version) => {
                let Ok(version) = version.parse() else { return Answer::Error };
                let object = |(key, object): (&String, &StoreObject)| Object {
                    key: key.clone(),
                    object: object.clone(),
                };
                self.store.replace(items.iter().map(object), version);
            }
            StoreLine::Get(key) => {
                let found = self.store.get(key);
                return found.map_or(Answer::Absent, |found| Answer::Object(found.object.text.clone()));
            }
            StoreLine::Keys => return sorted(self.store.snapshot().keys()),
            StoreLine::ByIndex(name, value) => {
                return self.ask(name, |view, index| Ok(sorted(view.keys_by_index(index, value)?)));
            }
            StoreLine::Values(name) => {
                return self
                    .ask(name, |view, index| Ok(sorted(view.index_values(index)?.map(|(value, _)| value))));
            }
        }
        Answer::Done
    }

    fn ask(
        &self,
        name: &str,
        question: impl Fn(&Snapshot<String, Object>, &ByName) -> Result<Answer, MissingIndex>,
    ) -> Answer {
        let answer = indexes::named(name).map(|index| question(&self.store.snapshot(), &index));
        answer.and_then(Result::ok).unwrap_or(Answer::MissingIndex)
    }
}

fn sorted<'a>(texts: impl Iterator<Item = &'a String>) -> Answer {
    let mut texts: Vec<_> = texts.cloned().collect();
    texts.sort_unstable();
    Answer::List(texts)
}
