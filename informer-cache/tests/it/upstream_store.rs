//! Counterparts of client-go's tests of its store and indexes. Each test names the client-go test that it corresponds to.
//!
//! Tests without a counterpart:
//! - `TestKeyError`: every object has a key, so there is no key error. Only parsing a key from a string can fail, see `surface`.
//! - `TestWithStoreMetricsDefaulting`: the store has no metrics.
//! - `TestTypedIndexersToIndexers`: every index is typed, so there is no conversion between typed and untyped indexes.
//! - `TestObjectNames`: its counterpart is `keys_round_trip` in `surface`.
//! - `TestDeletionHandlingObjectToName`, `TestDeletedObjectGetObjectName`, `TestDeletedObjectGetKey`: a change contains its key, and a deletion
//!   always contains the deleted object.

use std::sync::Arc;

use flyball_informer_cache::{
    Index, IndexError, LabelIndex, Schema, Selector, SharedWriter, Store, Version, WatchEvent, WriteOutcome,
    Writer,
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    id: &'static str,
    version: u64,
    users: Vec<&'static str>,
}

fn object(id: &'static str, users: &[&'static str]) -> Object {
    Object { id, version: 0, users: users.to_vec() }
}

fn at(id: &'static str, version: u64) -> Object {
    Object { id, version, users: Vec::new() }
}

static BY_USER: Index<Object, &'static str> = Index::many("byUser", |object| object.users.clone());
static BY_ID: Index<Object, &'static str> = Index::new("byId", |object| object.id);
static BY_NOTHING: Index<Object, &'static str> = Index::many("byNothing", |_| Vec::new());

fn store() -> SharedWriter<&'static str, Object> {
    writer().into_shared()
}

fn writer() -> Writer<&'static str, Object> {
    let schema = Schema::new(|object: &Object| object.id, |object| Version::new(object.version));
    Store::builder(schema).index(&BY_USER).index(&BY_ID).build().unwrap()
}

fn users_of(store: &SharedWriter<&'static str, Object>, user: &str) -> Vec<&'static str> {
    let mut ids: Vec<_> = store.snapshot().keys_by_index(&BY_USER, user).unwrap().copied().collect();
    ids.sort_unstable();
    store.check().unwrap();
    ids
}

/// TestCache, TestFIFOCache, TestUndeltaStore (doTestStore).
#[test]
fn add_update_delete_list_replace() {
    let store = store();
    store.upsert(object("foo", &["bar"]));
    assert_eq!(store.get("foo").unwrap().users, ["bar"]);
    store.upsert(object("foo", &["baz"]));
    assert_eq!(store.get("foo").unwrap().users, ["baz"]);
    assert_eq!(store.delete("foo", None), WriteOutcome::Deleted);
    assert_eq!(store.get("foo"), None);

    for id in ["a", "b", "c"] {
        store.upsert(object(id, &[]));
    }
    let list = |store: &SharedWriter<_, _>| {
        let mut ids: Vec<_> = store.snapshot().keys().copied().collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(list(&store), ["a", "b", "c"]);
    store.replace([object("foo", &[]), object("bar", &[])], Version::ZERO);
    assert_eq!(list(&store), ["bar", "foo"]);
}

/// TestIndex (doTestIndex): returns all objects that have the same index value as an example object.
#[test]
fn index_by_the_values_of_an_example() {
    let store = store();
    for (id, user) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("c1", "c")] {
        store.upsert(object(id, &[user]));
    }
    let example = object("x", &["b"]);
    assert_eq!(users_of(&store, example.users[0]), ["b1", "b2"]);
}

/// TestGetIndexFuncValues.
#[test]
fn index_values_are_listed_once_each() {
    let store = store();
    for (id, users) in [("one", &["x", "y"][..]), ("two", &["y"]), ("tre", &[])] {
        store.upsert(object(id, users));
    }
    let snapshot = store.snapshot();
    let mut values: Vec<_> =
        snapshot.index_values(&BY_USER).unwrap().map(|(user, count)| (*user, count)).collect();
    values.sort_unstable();
    assert_eq!(values, [("x", 1), ("y", 2)]);
}

/// TestMultiIndexKeys.
#[test]
fn several_values_per_object() {
    let store = store();
    store.upsert(object("one", &["ernie", "bert"]));
    store.upsert(object("two", &["bert", "oscar"]));
    store.upsert(object("tre", &["ernie", "elmo"]));
    assert_eq!(users_of(&store, "ernie"), ["one", "tre"]);
    assert_eq!(users_of(&store, "bert"), ["one", "two"]);
    assert_eq!(users_of(&store, "elmo"), ["tre"]);
    assert_eq!(users_of(&store, "oscar"), ["two"]);
    assert!(users_of(&store, "elmo1").is_empty(), "an unknown value has objects");

    store.delete("tre", None);
    assert_eq!(users_of(&store, "ernie"), ["one"]);
    assert!(users_of(&store, "elmo").is_empty());

    store.upsert(object("two", &["bert", "elmo"]));
    assert_eq!(users_of(&store, "bert"), ["one", "two"]);
    assert_eq!(users_of(&store, "elmo"), ["two"]);
    assert!(users_of(&store, "oscar").is_empty());
}

/// TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex.
#[test]
fn a_value_vanishes_with_its_last_object() {
    let store = store();
    store.upsert(object("a", &["u"]));
    assert_eq!(store.snapshot().index_values(&BY_USER).unwrap().len(), 1);
    store.delete("a", None);
    assert_eq!(store.snapshot().index_values(&BY_USER).unwrap().len(), 0);
}

/// TestThreadSafeStoreAddKeepsNonEmptySetPostDeleteFromIndex.
#[test]
fn a_value_stays_with_its_other_objects() {
    let store = store();
    store.upsert(object("a", &["u"]));
    store.upsert(object("b", &["u"]));
    store.delete("a", None);
    assert_eq!(users_of(&store, "u"), ["b"]);
}

/// TestThreadSafeStoreIndexingFunctionsWithMultipleValues.
#[test]
fn values_come_and_go_with_each_update() {
    let store = store();
    let is = |foo: &[&str], bar: &[&str], baz: &[&str]| {
        assert_eq!(
            [users_of(&store, "foo"), users_of(&store, "bar"), users_of(&store, "baz")],
            [foo, bar, baz]
        );
    };
    store.upsert(object("key1", &["foo"]));
    is(&["key1"], &[], &[]);
    store.upsert(object("key2", &["bar"]));
    is(&["key1"], &["key2"], &[]);
    store.upsert(object("key1", &["foo", "bar"]));
    is(&["key1"], &["key1", "key2"], &[]);
    store.upsert(object("key1", &["bar", "foo", "bar"]));
    is(&["key1"], &["key1", "key2"], &[]);
    store.upsert(object("key1", &["foo", "baz"]));
    is(&["key1"], &["key2"], &["key1"]);
    store.upsert(object("key1", &[]));
    is(&[], &["key2"], &[]);
    store.upsert(object("key1", &["foo", "bar", "baz"]));
    is(&["key1"], &["key1", "key2"], &["key1"]);
    store.delete("key1", None);
    is(&[], &["key2"], &[]);
}

/// TestThreadSafeStoreRV. Here no event lowers the version of the store, and an object without a version does not change it.
#[test]
fn the_version_of_the_store() {
    let store = store();
    assert_eq!(store.version(), Version::ZERO);
    store.upsert(at("a", 1));
    assert_eq!(store.version(), Version::new(1));
    store.upsert(at("a", 3));
    assert_eq!(store.version(), Version::new(3));
    store.upsert(at("b", 2));
    assert_eq!(store.version(), Version::new(3), "an older event of another object changed the version");
    store.upsert(at("c", 0));
    store.delete("c", None);
    assert_eq!(store.version(), Version::new(3));
    store.apply(WatchEvent::Deleted(at("a", 7)));
    assert_eq!(store.version(), Version::new(7));
    store.apply(WatchEvent::Deleted(at("a", 8)));
    assert_eq!(
        store.version(),
        Version::new(8),
        "the deletion of an absent object did not advance the version"
    );
    store.replace([at("x", 4)], Version::new(5));
    assert_eq!(store.version(), Version::new(5), "a list did not set its version, which is older");
    store.apply(WatchEvent::Bookmark(Version::new(4)));
    assert_eq!(store.version(), Version::new(5));
    store.apply(WatchEvent::Bookmark(Version::new(9)));
    assert_eq!(store.version(), Version::new(9));
}

/// TestIndexer: querying an index that does not exist is an error; querying an index for a value that it contains is not.
#[test]
fn a_missing_index_is_an_error() {
    let store = store();
    store.upsert(object("a", &["u"]));
    assert_eq!(store.by_index(&BY_NOTHING, "u").unwrap_err().name(), "byNothing");
    assert!(store.snapshot().index_values(&BY_NOTHING).is_err());
    assert_eq!(store.by_index(&BY_ID, "a").unwrap().len(), 1);
    // An index is identified by its name and its types: a second handle with the same name and types finds the same index.
    let again = Index::new("byId", |_: &Object| "never called");
    assert_eq!(store.by_index(&again, "a").unwrap(), [Arc::new(object("a", &["u"]))]);
    let other = Index::new("byId", |_: &Object| 7_u8);
    assert!(store.by_index(&other, &7).is_err());
}

/// TestListAll: counts all objects, the objects with a certain index value, and the objects with a value that does not occur (none).
#[test]
fn everything_is_listed() {
    let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    let tens = Index::new("tens", |number: &u32| number % 10);
    let store = Store::builder(schema).index(&tens).build().unwrap().into_shared();
    store.replace(0..10_000, Version::new(1));
    assert_eq!(store.len(), 10_000);
    assert_eq!(store.snapshot().objects().count(), 10_000);
    assert_eq!(store.by_index(&tens, &3).unwrap().len(), 1_000);
    assert_eq!(store.by_index(&tens, &10).unwrap().len(), 0);
    store.check().unwrap();
}

/// TestCacheWithTransformer: the transformation is called once for each object, and its result is stored.
#[test]
fn objects_are_transformed_before_they_are_stored() {
    let schema = Schema::new(|object: &Object| object.id, |object| Version::new(object.version));
    let store = Store::builder(schema).index(&BY_USER).transform(|mut object| {
        object.users.push("everybody");
        object
    });
    let store = store.build().unwrap().into_shared();
    store.upsert(object("a", &["u"]));
    store.replace([object("a", &["u"]), object("b", &[])], Version::ZERO);
    assert_eq!(store.get("a").unwrap().users, ["u", "everybody"]);
    assert_eq!(users_of(&store, "everybody"), ["a", "b"]);
}

/// TestCacheTransactionShouldIndexErrors: an index function fails for none, all or some of the objects of a transaction. Here all of the objects are
/// stored nevertheless, and `index_errors` lists the keys of those for which the function failed.
#[test]
fn a_transaction_stores_what_an_index_fails_on() {
    static MOODY: Index<Object, &'static str> =
        Index::fallible("moody", |object| match object.users.first() {
            Some(user) => Ok(vec![user]),
            None => Err(IndexError::new("nobody")),
        });
    let users: [&[&str]; 3] = [&["u"], &[], &["v"]];
    for (written, failed) in [(&[0, 2][..], &[][..]), (&[1], &["k1"]), (&[0, 1, 2], &["k1"])] {
        let schema = Schema::new(|object: &Object| object.id, |object| Version::new(object.version));
        let mut store = Store::builder(schema).index(&MOODY).build().unwrap();
        let mut writes = store.transaction();
        for at in written {
            writes.upsert(object(["k0", "k1", "k2"][*at], users[*at]));
        }
        assert_eq!(writes.commit().len(), written.len());
        assert_eq!(store.len(), written.len());
        assert_eq!(store.index_errors().iter().map(|(key, ..)| *key).collect::<Vec<_>>(), failed);
        let indexed: usize = store.snapshot().index_values(&MOODY).unwrap().map(|(_, objects)| objects).sum();
        assert_eq!(indexed, written.len() - failed.len());
        store.check().unwrap();
    }
}

/// TestThreadSafeStoreRV for a transaction: in client-go, the store gets the version of the last object in the transaction; here it gets the newest
/// version in it.
#[test]
fn the_version_after_a_transaction() {
    let mut store = writer();
    let mut writes = store.transaction();
    writes.upsert(at("a", 7));
    writes.upsert(at("b", 3));
    writes.commit();
    assert_eq!(store.version(), Version::new(7));
}

/// TestIndexer: an index that is added to a non-empty store contains all objects immediately, and later writes update it.
#[test]
fn an_index_added_late_is_complete() {
    static LATE: Index<Object, &'static str> = Index::many("late", |object| object.users.clone());
    let store = store();
    store.upsert(object("a", &["u"]));
    store.upsert(object("b", &["u", "v"]));
    store.add_index(&LATE).unwrap();
    assert_eq!(store.by_index(&LATE, "u").unwrap().len(), 2);
    store.upsert(object("c", &["v"]));
    let snapshot = store.snapshot();
    let mut values: Vec<_> = snapshot.index_values(&LATE).unwrap().collect();
    values.sort_unstable();
    assert_eq!(values, [(&"u", 2), (&"v", 2)]);
    assert_eq!(store.add_index(&LATE).unwrap_err().name(), "late");
    store.check().unwrap();
}

/// TestTypedIndexer: index queries return typed objects and keys, and every query of an index that does not exist is an error.
#[test]
fn results_have_their_types() {
    let store = store();
    store.upsert(object("a", &["u"]));
    let by_index: Vec<Arc<Object>> = store.by_index(&BY_USER, "u").unwrap();
    assert_eq!(*by_index[0], object("a", &["u"]));
    let snapshot = store.snapshot();
    let keys: Vec<&&'static str> = snapshot.keys_by_index(&BY_USER, "u").unwrap().collect();
    assert_eq!(keys, [&"a"]);
    assert!(store.by_index(&BY_NOTHING, "u").is_err());
    assert!(snapshot.keys_by_index(&BY_NOTHING, "u").is_err());
    assert!(snapshot.index_values(&BY_NOTHING).is_err());
}

/// TestListAll: lists objects by label selectors; the selectors match some objects, all objects, or no object.
#[test]
fn everything_is_listed_by_labels() {
    static ALL: Index<u32, ()> = Index::new("all", |_| ());
    static LABELS: LabelIndex<u32> = LabelIndex::new("labels", |number, each| {
        each("app", if number % 10 == 0 { "match" } else { "other" });
    });
    let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
    let store = Store::builder(schema).index(&ALL).index(&LABELS).build().unwrap().into_shared();
    store.replace(0..10_000, Version::new(1));
    let view = store.snapshot();
    let count = |selector: Selector| view.lister().select(&LABELS, &selector).unwrap().iter().count();
    assert_eq!(count(Selector::everything().equals("app", "match")), 1_000);
    assert_eq!(count(Selector::everything()), 10_000);
    assert_eq!(count(Selector::nothing()), 0);
    let in_scope = view.lister().by_index(&ALL, &()).unwrap();
    assert_eq!(in_scope.select(&LABELS, &Selector::everything()).unwrap().iter().count(), 10_000);
}
