//! What a source has delivered, and the objects that the store must therefore contain. An event that is delivered again has no effect.

use std::collections::BTreeSet;

use super::object::{IDENTITY, KEY, TRANSFORM, Thing, VERSION};
use super::source::{Entry, Kind, Objects, Options, StreamedList};

/// The functions whose panic leaves the stored object as it is.
const REFUSED: u8 = VERSION | IDENTITY | TRANSFORM;

/// What was delivered, and its effect.
pub(super) struct Delivered {
    options: Options,
    pub(super) objects: Objects,
    /// The keys whose stored object is not computed, because a function other than that of the key or of an index panicked on one of their objects.
    pub(super) unknown: BTreeSet<u8>,
    /// The keys under which the server may have another object than the store, because a function panicked since the last list.
    pub(super) tainted: BTreeSet<u8>,
    /// The index of the first event of the history that was not delivered.
    pub(super) next: usize,
    /// The lowest and the highest version that the store may have. They differ if a function panicked on an object.
    pub(super) version: (u64, u64),
    /// The newest version that the informer has read.
    pub(super) newest: u64,
    /// Whether a restore has undone what was delivered since the last list. The informer notices this within the time limit of a request.
    pub(super) undone: bool,
    pub(super) lists: u64,
    /// The keys that the last list did not contain, and that are stored because one of its objects had no readable key.
    pub(super) kept: BTreeSet<u8>,
    /// The cases that occurred.
    pub(super) cases: BTreeSet<&'static str>,
    pub(super) messages: usize,
    pub(super) requests: usize,
}

impl StreamedList {
    /// Creates the list of these objects.
    pub(super) fn of(objects: Objects) -> Self {
        let mut list = Self::default();
        objects.into_values().for_each(|thing| list.event(Kind::Added, thing));
        list
    }

    /// Applies an event that is delivered as a part of the list.
    pub(super) fn event(&mut self, kind: Kind, thing: Thing) {
        if thing.has(KEY) {
            self.keyless.insert(thing.uid, thing.key);
            if self.objects.contains_key(&thing.key) || kind == Kind::Deleted {
                self.unknown.insert(thing.key);
            }
            return;
        }
        match kind {
            Kind::Deleted => {
                self.objects.remove(&thing.key);
                self.removed.insert(thing.key);
            }
            Kind::Added | Kind::Modified => _ = self.objects.insert(thing.key, thing),
        }
    }
}

impl Delivered {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            objects: Objects::new(),
            unknown: BTreeSet::new(),
            tainted: BTreeSet::new(),
            next: 0,
            version: (0, 0),
            newest: 0,
            undone: false,
            lists: 0,
            kept: BTreeSet::new(),
            cases: BTreeSet::new(),
            messages: 0,
            requests: 0,
        }
    }

    /// Records a complete list of version `at`. The event at `next` is the first one after it.
    pub(super) fn listed(&mut self, list: StreamedList, at: u64, next: usize) {
        let StreamedList { objects, keyless, removed, unknown } = list;
        let refused = |thing: &Thing| thing.has(REFUSED);
        self.unknown.extend(unknown);
        self.tainted = keyless.values().copied().collect();
        let old = std::mem::replace(&mut self.objects, objects);
        self.kept.clear();
        for (key, thing) in old {
            let is_it = |uid: &u64| !self.options.identified || *uid == thing.uid;
            if refused(&thing) {
                self.unknown.insert(key);
            }
            if !self.objects.contains_key(&key) && keyless.keys().any(is_it) && !removed.contains(&key) {
                self.objects.insert(key, thing);
                self.tainted.insert(key);
                self.kept.insert(key);
                self.cases.insert("kept for an unreadable key");
            }
        }
        self.unknown.extend(self.objects.values().filter(|thing| refused(thing)).map(|thing| thing.key));
        let at = if self.options.versioned { at } else { 0 };
        (self.version, self.newest, self.undone, self.next) = ((at, at), at, false, next);
        self.lists += 1;
    }

    /// Records the first delivery of an event.
    pub(super) fn event(&mut self, Entry { kind, thing, .. }: Entry) {
        self.next += 1;
        self.version.1 = self.version.1.max(thing.version);
        if !thing.has(VERSION) {
            self.newest = self.newest.max(thing.version);
        }
        let stored = self.objects.get(&thing.key);
        if thing.has(REFUSED) || stored.is_some_and(|stored| stored.has(REFUSED)) {
            self.unknown.insert(thing.key);
        }
        if thing.faults & (KEY | REFUSED) != 0 {
            self.tainted.insert(thing.key);
        }
        if !thing.has(KEY) && !self.unknown.contains(&thing.key) {
            self.version.0 = self.version.0.max(thing.version);
        }
        if !thing.has(KEY) {
            match kind {
                Kind::Deleted => _ = self.objects.remove(&thing.key),
                Kind::Added | Kind::Modified => _ = self.objects.insert(thing.key, thing),
            }
        }
    }

    /// Records that an event is delivered again. An object that was only kept for an unreadable key is older than the list, so such an event may be newer.
    /// And a deletion that cannot be compared, because a function panics on its object, is applied.
    pub(super) fn repeated(&mut self, Entry { kind, thing, .. }: &Entry) {
        if self.kept.contains(&thing.key) || *kind == Kind::Deleted && thing.has(REFUSED) {
            self.unknown.insert(thing.key);
        }
    }

    /// Records an object that existed when a watch without a version began.
    pub(super) fn existing(&mut self, thing: Thing) {
        let next = self.next;
        self.event(Entry { version: 0, kind: Kind::Added, thing });
        self.next = next;
    }

    /// Records a bookmark.
    pub(super) fn reached(&mut self, version: u64) {
        self.version.0 = self.version.0.max(version);
        self.version.1 = self.version.1.max(version);
        self.newest = self.newest.max(version);
    }
}
