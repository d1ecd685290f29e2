//! The objects of the simulation, and the functions of the informer that may panic on one of them for as long as it exists.

use std::cell::Cell;
use std::panic::resume_unwind;

use flyball_informer_cache::{Index, Schema, Version};

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub(super) key: u8,
    /// The identity: an object that is deleted and created again has a new one.
    pub(super) uid: u64,
    /// The version of the write that produced this state, or 0 if the source has no versions.
    pub(super) version: u64,
    /// The value in the index [`BY_GROUP`].
    pub(super) group: u8,
    /// The functions that panic on this object, as a sum of the constants below.
    pub(super) faults: u8,
}

pub(super) const KEY: u8 = 1;
pub(super) const INDEX: u8 = 2;
pub(super) const VERSION: u8 = 4;
pub(super) const IDENTITY: u8 = 8;
pub(super) const TRANSFORM: u8 = 16;

impl Thing {
    pub(super) const fn has(&self, fault: u8) -> bool {
        self.faults & fault != 0
    }
}

thread_local! {
    /// Whether the functions of the schema panic. They do so only while the run future is polled: a consumer that calls the identity function would
    /// otherwise receive its panic.
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, in which the functions of the schema panic on objects with faults.
pub(super) fn armed<R>(f: impl FnOnce() -> R) -> R {
    ARMED.set(true);
    let result = f();
    ARMED.set(false);
    result
}

fn panic_if(thing: &Thing, fault: u8) {
    if ARMED.get() && thing.has(fault) {
        // Unlike `panic!`, this does not run the panic hook, which would print each panic.
        resume_unwind(Box::new("a function panics on this object"));
    }
}

pub(super) const UNIDENTIFIED: Schema<u8, Thing> = Schema::new(
    |thing: &Thing| {
        panic_if(thing, KEY);
        thing.key
    },
    |thing| {
        panic_if(thing, VERSION);
        Version::new(thing.version)
    },
);

pub(super) const SCHEMA: Schema<u8, Thing> = UNIDENTIFIED.with_identity(|a, b| {
    panic_if(a, IDENTITY);
    panic_if(b, IDENTITY);
    a.uid == b.uid
});

pub(super) fn transformed(thing: Thing) -> Thing {
    panic_if(&thing, TRANSFORM);
    thing
}

fn group(thing: &Thing) -> u8 {
    if thing.has(INDEX) {
        resume_unwind(Box::new("the index function panics on this object"));
    }
    thing.group
}

/// The index by which subscriptions select objects.
pub(super) static BY_GROUP: Index<Thing, u8> = Index::new("group", group);
pub(super) static BY_RANK: Index<Thing, u8> = Index::new("rank", group).ordered();

/// The values of the indexes.
pub(super) const GROUPS: u8 = 3;
