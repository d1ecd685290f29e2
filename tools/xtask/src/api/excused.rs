//! The list `docs/api/without-example.txt`: the public items that need no example of their own.
//!
//! An entry has the form `path: reason`, or `path: in place: reason`, where `place` is the item whose docs contain an example of the item.

use std::collections::BTreeMap;

/// The file that contains the list.
pub(super) const FILE: &str = "docs/api/without-example.txt";

/// The entries by the paths of their items.
#[derive(Debug, Default)]
pub(super) struct Excused(BTreeMap<String, Entry>);

#[derive(Debug)]
pub(super) struct Entry {
    /// The item whose docs contain an example.
    pub(super) place: Option<String>,
    used: bool,
}

impl Excused {
    /// Reads the entries. Returns a complaint for each line that is not an entry.
    pub(super) fn read(text: &str) -> (Self, Vec<String>) {
        let (mut excused, mut complaints) = (Self::default(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, rest) = line.split_once(": ").unwrap_or((line, ""));
            let (place, reason) = match rest.strip_prefix("in ") {
                Some(rest) => rest.split_once(": ").map_or((None, ""), |(at, why)| (Some(at), why)),
                None => (None, rest),
            };
            if reason.trim().is_empty() {
                complaints.push(format!("{FILE}:{}: no reason", at + 1));
            }
            let entry = Entry { place: place.map(str::to_owned), used: false };
            if excused.0.insert(path.to_owned(), entry).is_some() {
                complaints.push(format!("{FILE}:{}: {path} is listed twice", at + 1));
            }
        }
        (excused, complaints)
    }

    pub(super) fn entry(&mut self, path: &str) -> Option<&Entry> {
        let entry = self.0.get_mut(path)?;
        entry.used = true;
        Some(entry)
    }

    /// The paths with which `entry` was never called.
    pub(super) fn left(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, entry)| !entry.used).map(|(path, _)| path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_with_their_place() {
        let text = "# why\n\na::B: in a::b: returned by it\na::c: the same as a::d\n";
        let (mut excused, complaints) = Excused::read(text);
        assert!(complaints.is_empty());
        assert_eq!(excused.entry("a::B").unwrap().place.as_deref(), Some("a::b"));
        assert_eq!(excused.left().collect::<Vec<_>>(), ["a::c"]);
        assert!(excused.entry("a::c").unwrap().place.is_none());
        assert!(excused.entry("a::e").is_none());
    }

    #[test]
    fn an_entry_without_a_reason_or_a_repeated_one_is_reported() {
        let complaints = Excused::read("a\na::b: in a::c\na::d: one\na::d: two\n").1;
        let at = |line| format!("{FILE}:{line}");
        assert_eq!(
            complaints,
            [at(1) + ": no reason", at(2) + ": no reason", at(4) + ": a::d is listed twice"]
        );
    }
}
