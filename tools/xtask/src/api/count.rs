//! Counts the items of the listings in `docs/api`: the functions, types and fields that a user can name.
//!
//! An item counts once, by its path without generic arguments. The methods, types and constants of an implementation of a trait are not counted: they
//! are the items of the trait, which count where the trait is declared, or are foreign. Re-exports are not counted either: the re-exported item counts in its own crate.

use std::collections::BTreeSet;
use std::fmt;

/// The counted items of one listing, by their paths.
#[derive(Debug, Default)]
pub(super) struct Count {
    functions: BTreeSet<String>,
    types: BTreeSet<String>,
    /// The fields of structs, the variants of enums and their fields, and the constants and statics.
    fields: BTreeSet<String>,
}

impl Count {
    /// Counts the items of one listing.
    pub(super) fn of(listing: &str) -> Self {
        let mut count = Self::default();
        let mut modules = BTreeSet::new();
        let mut is_trait_impl = false;
        for line in listing.lines() {
            let declared = without_attributes(line);
            let declared = declared.strip_prefix("unsafe ").unwrap_or(declared);
            if let Some(header) = declared.strip_prefix("impl") {
                is_trait_impl = at_top_level(header, " for ").is_some();
                continue;
            }
            let Some(declared) = declared.strip_prefix("pub ") else { continue };
            let (kind, declared) = Kind::of(declared);
            let path = path(declared);
            // An item of a module follows the items of an implementation without a line between them.
            let is_free = path.rsplit_once("::").is_some_and(|(parent, _)| modules.contains(parent));
            if is_free || matches!(kind, Kind::Module | Kind::Type) {
                is_trait_impl = false;
            }
            match kind {
                Kind::Module => drop(modules.insert(path)),
                Kind::Reexport => {}
                _ if is_trait_impl => {}
                Kind::Function => drop(count.functions.insert(path)),
                Kind::Type => drop(count.types.insert(path)),
                // The other aliases are the associated types of a trait.
                Kind::Alias if is_free => drop(count.types.insert(path)),
                Kind::Alias => {}
                Kind::Field => drop(count.fields.insert(path)),
            }
        }
        count
    }

    /// The number of methods of a type or trait, given by the last segment of its path.
    pub(super) fn methods(&self, of: &str) -> usize {
        let owner = |path: &&String| path.rsplit("::").nth(1) == Some(of);
        self.functions.iter().filter(owner).count()
    }

    /// Whether the listing declares a type or trait with this name.
    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types.iter().any(|path| path.rsplit("::").next() == Some(name))
    }

    pub(super) fn totals(&self) -> Totals {
        Totals { functions: self.functions.len(), types: self.types.len(), fields: self.fields.len() }
    }
}

/// The numbers of one row of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    functions: usize,
    types: usize,
    fields: usize,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.functions += other.functions;
        self.types += other.types;
        self.fields += other.fields;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { functions, types, fields } = *self;
        write!(f, "{functions:>9} {types:>9} {fields:>9} {:>9}", functions + types + fields)
    }
}

/// The heading above the rows of [`Totals`].
pub(super) const HEADING: &str = "functions     types    fields     total";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Module,
    Reexport,
    Function,
    /// A struct, an enum, a union, a trait or a macro.
    Type,
    Alias,
    Field,
}

impl Kind {
    /// Splits a declaration into its kind and the rest, which starts with the path.
    fn of(declared: &str) -> (Self, &str) {
        let mut rest = declared;
        let mut kind = Self::Field;
        while let Some((word, after)) = rest.split_once(' ') {
            kind = match word {
                "mod" => Self::Module,
                "use" => Self::Reexport,
                "fn" => Self::Function,
                "struct" | "enum" | "union" | "trait" | "macro" => Self::Type,
                "type" => Self::Alias,
                // What they qualify follows: `const` may be of a function or of a constant.
                "const" | "static" | "async" | "unsafe" | "mut" => kind,
                word if word.starts_with("extern") || word.starts_with('"') => kind,
                _ => break,
            };
            rest = after;
        }
        (kind, rest)
    }
}

/// Removes attributes such as `#[non_exhaustive]`.
fn without_attributes(line: &str) -> &str {
    let mut rest = line;
    while let Some((_, after)) = rest.strip_prefix("#[").and_then(|rest| rest.split_once("] ")) {
        rest = after;
    }
    rest
}

/// The path at the start of a declaration, without generic arguments.
fn path(declared: &str) -> String {
    let mut path = String::new();
    let mut depth = 0_usize;
    for (at, c) in declared.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(usize::from(!declared[..at].ends_with('-'))),
            _ if depth > 0 => {}
            // The colon before the type of a field is followed by a space; those of a path are not.
            ':' if declared[at..].starts_with(": ") => break,
            '(' | ' ' => break,
            _ => path.push(c),
        }
    }
    path
}

/// The position of `what` outside of all brackets.
fn at_top_level(text: &str, what: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            _ if depth == 0 && text[at..].starts_with(what) => return Some(at),
            '<' | '(' | '[' => depth += 1,
            '>' if text[..at].ends_with('-') => {}
            '>' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(listing: &str) -> [usize; 3] {
        let Totals { functions, types, fields } = Count::of(listing).totals();
        [functions, types, fields]
    }

    #[test]
    fn each_kind_of_item_counts() {
        let listing = "\
pub mod q
pub mod q::m
pub fn q::m::free<F: core::ops::function::Fn(u8) -> u8>(F) -> u8
#[non_exhaustive] pub enum q::Error<K>
pub q::Error::Full(K)
pub q::Error::Late
pub q::Error::Late::by: core::time::Duration
#[non_exhaustive] #[repr(u8)] pub struct q::Stats
pub q::Stats::len: usize
impl q::Stats
pub const q::Stats::MAX: usize
pub const fn q::Stats::new(usize) -> Self
pub async fn q::Stats::wait(&self)
pub const unsafe fn q::Stats::raw(&self)
pub type q::Pair = (q::Stats, q::Stats)
";
        assert_eq!(totals(listing), [4, 3, 5]);
    }

    #[test]
    fn implementations_of_traits_do_not_count() {
        let listing = "\
pub mod q
pub struct q::Queue<K>
impl<K: q::Key, F: core::ops::function::Fn(K) -> K> q::Queue<K>
pub fn q::Queue<K>::get(&self) -> K
impl<K> q::Take<K> for q::Queue<K>
pub type q::Queue<K>::Output = K
pub const q::Queue<K>::ORDERED: bool
pub fn q::Queue<K>::get(&self) -> K
pub fn q::Queue<K>::take(&self) -> K
impl<K> core::clone::Clone for q::Queue<K>
pub fn q::Queue<K>::clone(&self) -> Self
pub trait q::Take<K>
pub type q::Take::Output
pub const q::Take::ORDERED: bool
pub fn q::Take::take(&self) -> K
unsafe impl<K> core::marker::Send for q::Queue<K>
impl<K> q::Take<K> for q::Queue<K>
pub fn q::Queue<K>::take(&self) -> K
pub fn q::free()
";
        // `Queue::get`, `Take::take` and `free`; `Queue` and `Take`; the constant of `Take`.
        assert_eq!(totals(listing), [3, 2, 1]);
    }

    #[test]
    fn an_item_of_two_implementations_counts_once() {
        let listing = "\
pub mod q
pub use q::Clock
pub struct q::Limit<C>
impl q::Limit<q::Fast>
pub fn q::Limit<q::Fast>::new() -> Self
impl q::Limit<q::Slow>
pub fn q::Limit<q::Slow>::new() -> Self
pub fn q::Limit<q::Slow>::rate<'a>(&'a self) -> &'a u8
pub struct q::Limiter
impl q::Limiter
pub fn q::Limiter::new() -> Self
";
        let count = Count::of(listing);
        assert_eq!(totals(listing), [3, 2, 0]);
        assert_eq!((count.methods("Limit"), count.methods("Limiter"), count.methods("Lim")), (2, 1, 0));
        assert!(count.has_type("Limit") && !count.has_type("Clock"));
    }

    #[test]
    fn rows_stand_under_their_headings() {
        let mut sum = Totals { functions: 1, types: 2, fields: 3 };
        sum += Totals { functions: 100, types: 0, fields: 1 };
        assert_eq!(sum.to_string(), "      101         2         4       107");
        assert_eq!(sum.to_string().len(), HEADING.len());
    }
}
