//! EDGE. Creates index handles for the index names that a script uses.
//!
//! A handle requires a `'static` name, and an index function that captures nothing. Therefore there is a table with a
//! fixed number of names, and one index function per slot of the table, which reads the name from its slot. The first
//! use of a name takes a slot, which is never freed. Several handles of one name are possible, because the store
//! identifies its indexes by name.

use std::sync::OnceLock;

use flyball_informer_cache::{Index, IndexError};

use crate::store::Object;

/// An index whose values are the ones that an object lists under the name of the index.
pub(crate) type ByName = Index<Object, String>;

type Values = fn(&Object) -> Result<Vec<String>, IndexError>;

/// Returns a handle for a name; `None` if the name is not in the table and the table is full. All scripts share the table.
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
