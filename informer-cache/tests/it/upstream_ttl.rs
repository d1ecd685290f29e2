//! Counterparts of client-go's tests of its store with expiry. Each test names the client-go test that it corresponds to.
//!
//! client-go deletes an expired object when it is read. Here a sweep deletes it, so a read after the sweep does not find it.

use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{Schema, Store, TtlWriter, Version, WriteOutcome};
use flyball_sync::{ManualClock, Nanos};
use parking_lot::Mutex;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    id: &'static str,
    value: &'static str,
}

type Objects = TtlWriter<&'static str, Object>;

const SECOND: Duration = Duration::from_secs(1);

fn object(id: &'static str, value: &'static str) -> Object {
    Object { id, value }
}

fn store() -> (Objects, ManualClock) {
    let clock = ManualClock::new();
    let schema = Schema::new(|object: &Object| object.id, |_| Version::ZERO);
    let (store, _) = TtlWriter::new(Store::builder(schema).build().unwrap(), clock.timer());
    (store, clock)
}

/// TestTTLExpirationBasic: a swept object is not found, and its deletion is reported.
#[test]
fn expiration_basic() {
    let (store, clock) = store();
    let received = Arc::new(Mutex::new(Vec::new()));
    let _observer = store.observe({
        let received = received.clone();
        move |change| {
            if change.new().is_none() {
                received.lock().push(*change.key());
            }
        }
    });
    store.upsert(object("foo", "bar"), Some(SECOND));
    clock.advance(2 * SECOND);
    assert_eq!(store.sweep(), 1);
    assert_eq!(*received.lock(), ["foo"]);
    assert_eq!((store.get(&"foo"), store.len()), (None, 0));
    store.check().unwrap();
}

/// TestReAddExpiredItem: a write to a key whose object has expired starts a new time to live. (In client-go, it counts as an addition; here it is one
/// after the sweep, and an update before.)
#[test]
fn re_add_expired_item() {
    for sweeps in [true, false] {
        let (store, clock) = store();
        store.upsert(object("foo", "bar"), Some(SECOND));
        clock.advance(2 * SECOND);
        let expected = if sweeps { WriteOutcome::Added } else { WriteOutcome::Updated };
        assert!(!sweeps || store.sweep() == 1);
        assert_eq!(store.upsert(object("foo", "baz"), Some(SECOND)), expected);
        clock.advance(SECOND / 2);
        assert_eq!(store.sweep(), 0);
        let found = store.get(&"foo");
        assert_eq!(found.as_deref(), Some(&object("foo", "baz")), "the time to live did not start again");
        store.check().unwrap();
    }
}

/// TestTTLList: only the one of three objects that never expires is listed. (In client-go, the list of keys contains all three.)
#[test]
fn list() {
    let (store, clock) = store();
    for id in ["foo", "foo1", "foo2"] {
        store.upsert(object(id, "bar"), (id != "foo2").then_some(SECOND));
    }
    clock.advance(2 * SECOND);
    assert_eq!(store.sweep(), 2);
    let view = store.snapshot();
    assert_eq!(view.objects().map(|object| object.id).collect::<Vec<_>>(), ["foo2"]);
    assert_eq!(view.keys().copied().collect::<Vec<_>>(), ["foo2"]);
    store.check().unwrap();
}

/// TestTTLPolicy: an object expires when its age reaches its time to live; without a time to live, it never expires. (In client-go, it expires after
/// this age, and a time to live of 0 or less means that the object never expires.)
#[test]
fn policy() {
    let begin = Nanos::new(7);
    let cases: [(Option<Duration>, Duration, bool); 5] = [
        (Some(SECOND), SECOND / 2, false),
        (Some(SECOND), SECOND - Duration::from_nanos(1), false),
        (Some(SECOND), SECOND, true),
        (None, Duration::MAX, false),
        (Some(Duration::ZERO), Duration::ZERO, true),
    ];
    for (ttl, age, expires) in cases {
        let (store, clock) = store();
        clock.set(begin);
        store.upsert(object("foo", "bar"), ttl);
        clock.set(begin + age);
        store.sweep();
        assert_eq!(store.get(&"foo").is_none(), expires, "{ttl:?} at the age of {age:?}");
    }
}
