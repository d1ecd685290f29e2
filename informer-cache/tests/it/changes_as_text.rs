//! Formats received changes as short texts, for tests of subscriptions.

use std::hash::Hash;

use flyball_informer_cache::{Change, ChangeKind, Subscription};

/// Takes the pending changes and returns them as texts. `=1@2` is an initial object with key 1 and version 2, `+1@2` an addition, `1@2>3` an update,
/// `1@2!3` a replacement, `-1@2` a deletion, and `-1@2?` a deletion that was missed. `of` returns the key and the version of an object.
pub(crate) fn changes_as_text<K, V>(
    changes: &mut Subscription<K, V>,
    of: impl Fn(&V) -> (u64, u64),
) -> Vec<String>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let text = |change: Change<K, V>| {
        let (key, version) = of(change.object());
        let old = change.old().map_or(0, |old| of(old).1);
        match change.kind() {
            ChangeKind::Initial => format!("={key}@{version}"),
            ChangeKind::Added => format!("+{key}@{version}"),
            ChangeKind::Updated => format!("{key}@{old}>{version}"),
            ChangeKind::Replaced => format!("{key}@{old}!{version}"),
            ChangeKind::Deleted => format!("-{key}@{version}"),
            ChangeKind::Missed => format!("-{key}@{version}?"),
        }
    };
    std::iter::from_fn(|| changes.try_next()).map(text).collect()
}
