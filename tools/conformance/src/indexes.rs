//! EDGE. Handles of indexes that a script names as it goes.
//!
//! A handle's name lives as long as the process, and its function captures nothing. So there are places for names, each with a
//! function that looks under the name in its place: the first to ask for a name takes a place for it, for good. The store itself
//! then tells by the name which indexes it has.

use std::sync::OnceLock;

use flyball_informer_cache::{Index, IndexError};

use crate::store::Object;

/// The index of what an object has under the index's own name.
pub(crate) type ByName = Index<Object, String>;

type Values = fn(&Object) -> Result<Vec<String>, IndexError>;

/// The handle of a name; `None` when there are more names than places. They are shared by all scripts.
pub(crate) fn named(name: &str) -> Option<ByName> {
    let place = NAMES.iter().position(|known| known.get_or_init(|| name.to_owned()) == name)?;
    Some(Index::fallible(NAMES[place].get()?, VALUES[place]))
}

fn values<const PLACE: usize>(object: &Object) -> Result<Vec<String>, IndexError> {
    let name = NAMES[PLACE].get().ok_or_else(|| IndexError::new("an index without a name"))?;
    match object.object.members.get(name) {
        None => Ok(Vec::new()),
        Some(Some(values)) => Ok(values.clone()),
        Some(None) => Err(IndexError::new(format!("{name:?} has to be a list of strings"))),
    }
}

macro_rules! places {
    ($($place:literal)*) => {
        static NAMES: [OnceLock<String>; VALUES.len()] = [const { OnceLock::new() }; VALUES.len()];
        const VALUES: [Values; [$($place),*].len()] = [$(values::<$place>),*];
    };
}

places! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
}
