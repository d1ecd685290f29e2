//! Counterparts of client-go's tests of its store with expiry. Each test names the client-go test that it corresponds to.
//!
//! client-go removes expired objects lazily, when they are read. Here `evict_expired` removes them, and reads skip them even before that.

use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Change, TtlEntry, TtlStore, WriteOutcome};
use flyball_sync::{ManualClock, Nanos};
use parking_lot::Mutex;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    id: &'static str,
    value: &'static str,
}

type Objects = TtlStore<&'static str, Object, ManualClock>;

const SECOND: Duration = Duration::from_secs(1);

fn object(id: &'static str, value: &'static str) -> Object {
    Object { id, value }
}

fn store(policy: impl Fn(&Object) -> Option<Duration> + Send + Sync + 'static) -> (Objects, ManualClock) {
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|object: &TtlEntry<Object>| object.id).ttl_with(policy);
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

fn deletions(changes: &[Change<&'static str, TtlEntry<Object>>]) -> Vec<&'static str> {
    assert!(changes.iter().all(|change| change.new().is_none()));
    changes.iter().map(|change| *change.key()).collect()
}

/// TestTTLExpirationBasic: no read returns an expired object, and the eviction reports its deletion.
#[test]
fn expiration_basic() {
    let (store, clock) = store(|_| Some(SECOND));
    let received = Arc::new(Mutex::new(Vec::new()));
    let _observer = store.observe({
        let received = received.clone();
        move |change: &Change<_, _>| {
            if change.new().is_none() {
                received.lock().push(*change.key());
            }
        }
    });
    store.upsert(object("foo", "bar"));
    clock.advance(2 * SECOND);
    assert_eq!(store.get(&"foo"), None);
    assert_eq!(deletions(&store.evict_expired()), ["foo"]);
    assert_eq!(*received.lock(), ["foo"]);
    assert_eq!((store.get(&"foo"), store.stored_len()), (None, 0));
    store.check().unwrap();
}

/// TestReAddExpiredItem: a write to a key whose object has expired counts as an addition, not as an update.
#[test]
fn re_add_expired_item() {
    let (store, clock) = store(|_| Some(SECOND));
    store.upsert(object("foo", "bar"));
    clock.advance(2 * SECOND);
    assert_eq!(store.upsert(object("foo", "baz")), WriteOutcome::Added);
    assert_eq!(store.get(&"foo").as_deref(), Some(&object("foo", "baz")));
    clock.advance(SECOND);
    assert_eq!(
        store.get(&"foo").as_deref(),
        Some(&object("foo", "baz")),
        "the time to live did not start again"
    );
    assert!(store.evict_expired().is_empty());
    store.check().unwrap();
}

/// TestTTLList: only the one of three objects that never expires is listed, and the eviction deletes the other two. (In client-go, the list of keys
/// contains all three.)
#[test]
fn list() {
    let (store, clock) = store(|object| (object.id != "foo2").then_some(SECOND));
    for id in ["foo", "foo1", "foo2"] {
        store.upsert(object(id, "bar"));
    }
    clock.advance(2 * SECOND);
    let view = store.snapshot();
    assert_eq!(view.objects().map(|object| object.id).collect::<Vec<_>>(), ["foo2"]);
    assert_eq!(view.keys().copied().collect::<Vec<_>>(), ["foo2"]);
    assert_eq!((view.len(), store.len()), (1, 1));
    let mut deleted = deletions(&store.evict_expired());
    deleted.sort_unstable();
    assert_eq!(deleted, ["foo", "foo1"]);
    store.check().unwrap();
}

/// TestTTLPolicy: an object is visible until its age exceeds its time to live; without a time to live, it never expires. (In client-go, a time to
/// live of 0 or less means that the object never expires.)
#[test]
fn policy() {
    let begin = Nanos::new(7);
    let cases: [(Option<Duration>, Duration, bool); 6] = [
        (Some(SECOND), SECOND / 2, true),
        (Some(SECOND), SECOND, true),
        (Some(SECOND), SECOND + Duration::from_nanos(1), false),
        (None, Duration::MAX, true),
        (Some(Duration::ZERO), Duration::ZERO, true),
        (Some(Duration::ZERO), Duration::from_nanos(1), false),
    ];
    for (ttl, age, alive) in cases {
        let (store, clock) = store(move |_| ttl);
        clock.set(begin);
        store.upsert(object("foo", "bar"));
        clock.set(begin + age);
        assert_eq!(store.get(&"foo").is_some(), alive, "{ttl:?} at the age of {age:?}");
        assert_eq!(store.evict_expired().is_empty(), alive, "{ttl:?} at the age of {age:?}");
    }
}
