//! The beginning, as each consumer sees it: what is initial, and when all of it has been told.
//!
//! Counterparts of client-go, one named case each: `TestFIFO_HasSynced` (7) and `…_HasSyncedCorrectOnDeletion` of its queue,
//! `TestAddWhileActive`'s two levels (the store has its list, the consumer has heard it), `TestResetWatch`'s flags.

use flyball_informer_cache::{Change, ChangeKind, Informer, Schema, Store, Subscription, Version};
use parking_lot::Mutex;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::server::server;
use crate::world::{EXPIRED, SCHEMA, World, object};

type Objects = Store<u32, (u32, u64)>;

fn store() -> Objects {
    Store::builder(Schema::new(|object: &(u32, u64)| object.0, |object| Version::new(object.1)))
        .seed(1)
        .build()
        .unwrap()
}

/// A list of these keys, each object and the list at this version.
fn list(store: &Objects, keys: impl IntoIterator<Item = u32>, version: u64) {
    store.replace(keys.into_iter().map(|key| (key, version)), Version::new(version));
}

/// `=` is initial, `+` is not, `~` is an update.
fn brief<K: std::fmt::Display, V>(change: &Change<K, V>) -> String {
    let sign = match &change.kind {
        ChangeKind::Added { initial: true, .. } => '=',
        ChangeKind::Added { .. } => '+',
        ChangeKind::Updated { .. } => '~',
        ChangeKind::Deleted { .. } => '-',
    };
    format!("{sign}{}", change.key())
}

/// The next change, and whether the consumer is caught up after it.
fn next<K: Clone + Eq + std::hash::Hash + std::fmt::Display, V>(
    changes: &mut Subscription<K, V>,
) -> (String, bool) {
    let told = changes.try_next().map_or_else(String::new, |change| brief(&change));
    (told, changes.is_caught_up())
}

fn told(text: &str, caught_up: bool) -> (String, bool) {
    (text.to_owned(), caught_up)
}

#[test]
fn nothing_has_come_yet() {
    let store = store();
    let mut changes = store.subscribe();
    assert_eq!(next(&mut changes), told("", false));
    // Nor is an end a beginning.
    store.close();
    assert_eq!(next(&mut changes), told("", false));
    assert!(!store.subscribe().is_caught_up());
}

#[test]
fn what_comes_before_the_list_is_not_of_it() {
    let store = store();
    store.upsert((1, 1));
    let mut changes = store.subscribe();
    store.upsert((2, 2));
    assert_eq!(next(&mut changes), told("=1", false), "what was there");
    assert_eq!(next(&mut changes), told("+2", false));
    store.upsert((3, 3));
    list(&store, [1, 2, 3, 4], 9);
    // 3 had come by itself; that is all there is to tell the two apart by.
    assert_eq!(next(&mut changes), told("+3", false));
    assert_eq!(next(&mut changes), told("~1", false));
    assert_eq!(next(&mut changes), told("~2", false));
    assert_eq!(next(&mut changes), told("=4", true));
}

#[test]
fn an_empty_list_is_a_list() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [], 1);
    assert_eq!(next(&mut changes), told("", true));
    assert!(store.subscribe().is_caught_up(), "and so for who comes later");
}

#[test]
fn all_of_the_first_list_has_to_be_told() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [1, 2, 1], 1);
    store.upsert((2, 2));
    store.upsert((3, 3));
    assert!(!changes.is_caught_up());
    assert_eq!(next(&mut changes), told("=1", false), "listed twice, told once");
    assert_eq!(next(&mut changes), told("=2", true), "as it is now");
    assert_eq!(next(&mut changes), told("+3", true));
}

#[test]
fn a_later_list_is_news() {
    let store = store();
    let mut early = store.subscribe();
    list(&store, [1], 1);
    list(&store, [1, 2], 2);
    let mut late = store.subscribe();
    assert_eq!([next(&mut early), next(&mut early)], [told("=1", true), told("+2", true)]);
    let mut snapshot = [next(&mut late), next(&mut late)].map(|told| told.0);
    snapshot.sort_unstable();
    assert_eq!(snapshot, ["=1", "=2"]);
    list(&store, [3], 3);
    assert!(early.is_caught_up() && late.is_caught_up(), "once for all");
    assert_eq!(next(&mut early).0, next(&mut late).0);
}

/// `TestFIFO_HasSyncedCorrectOnDeletion`: what the list takes away is a part of the beginning; what goes unseen is waited for by nobody.
#[test]
fn deletions_count_and_what_vanished_does_not() {
    let store = store();
    store.upsert((1, 1));
    let mut changes = store.subscribe();
    assert_eq!(next(&mut changes), told("=1", false));
    list(&store, [2, 3], 2);
    for key in [2, 3] {
        store.delete(&key, None);
    }
    assert_eq!(next(&mut changes), told("-1", true));
    assert_eq!(next(&mut changes), told("", true));
}

/// What an object of the list is when it comes back, in place of one the consumer was to be told of, or knew.
#[test]
fn what_comes_back_is_not_initial() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [1, 2], 1);
    assert_eq!(next(&mut changes), told("=1", false));
    for key in [1, 2] {
        store.delete(&key, None);
        store.upsert((key, 5));
    }
    assert_eq!(next(&mut changes), told("~1", true), "there is no identity here");
    assert_eq!(next(&mut changes), told("+2", true));
}

/// The same through an informer, whatever its first list comes as; and a relist after a lost watch is none.
#[test]
fn an_informers_first_list_is_initial_for_who_was_there_before_it() {
    for (pages, streaming) in [(0, false), (2, false), (0, true)] {
        let server = server();
        for key in 0..5 {
            server.put(object(key, 0));
        }
        let mut builder = Informer::builder(SCHEMA, server.clone());
        if let Some(size) = NonZeroU32::new(pages) {
            builder = builder.page_size(size);
        }
        if streaming {
            builder = builder.streaming_lists();
        }
        let mut world = World::new(builder);
        let mut changes = world.informer.subscribe();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let noting = heard.clone();
        let _observer = world.informer.observe(move |change| noting.lock().push(brief(change)));
        assert!(!changes.is_caught_up());
        world.settle();
        assert!(world.informer.is_synced() && !changes.is_caught_up());
        let first: Vec<_> = (0..5).map(|_| next(&mut changes)).collect();
        let flags: Vec<_> = ["=0", "=1", "=2", "=3", "=4"].into_iter().map(String::from).collect();
        assert_eq!(first.iter().map(|told| told.0.clone()).collect::<Vec<_>>(), flags);
        assert_eq!(first.iter().map(|told| told.1).collect::<Vec<_>>(), [false, false, false, false, true]);
        assert_eq!(std::mem::take(&mut *heard.lock()), flags);
        // Something is missed, and comes by a list.
        server.break_watches(EXPIRED);
        server.put(object(0, 0));
        server.put(object(5, 0));
        world.pass(std::time::Duration::from_secs(60));
        assert_eq!([next(&mut changes), next(&mut changes)], [told("~0", true), told("+5", true)]);
        assert_eq!(*heard.lock(), ["~0", "+5"]);
    }
}
