//! Tests of the marker traits of the public types, of the texts of errors, and of the parser for keys.

use std::error::Error;
use std::fmt::Debug;
use std::num::NonZeroUsize;

use flyball_informer_cache::{
    Change, DuplicateIndex, HandlerExit, HandlerRegistration, Index, IndexError, InitialProcessed,
    MissingIndex, NamespacedName, Observer, ParseNamespacedNameError, ParseVersionError, Relist, Schema,
    SharedWriter, Snapshot, Stopped, Store, StoreBuilder, Subscription, SubscriptionBuilder,
    SubscriptionEvent, Transaction, Version, WaitForError, WriteOutcome, Writer, testing,
};
use testkit::random::Random;

fn shared<T: Send + Sync + Unpin + Debug>() {}
fn error<T: Error + Send + Sync + 'static>() {}

#[test]
fn types_can_be_sent_shared_and_shown() {
    shared::<Store<String, String>>();
    shared::<StoreBuilder<String, String>>();
    shared::<Snapshot<String, String>>();
    shared::<Subscription<String, String>>();
    shared::<SubscriptionBuilder<String, String>>();
    shared::<Subscription<String, String, SubscriptionEvent<String, String>>>();
    shared::<SubscriptionEvent<String, String>>();
    shared::<Observer<String, String>>();
    shared::<InitialProcessed>();
    shared::<Writer<String, String>>();
    shared::<SharedWriter<String, String>>();
    shared::<Relist<'_, String, String>>();
    shared::<Transaction<'_, String, String>>();
    shared::<Change<String, String>>();
    shared::<Index<String, String>>();
    shared::<Schema<String, String>>();
    shared::<NamespacedName>();
    shared::<Version>();
    shared::<testing::TestServer<String, String>>();
    shared::<testing::TestServerWatch<String, String>>();
    shared::<WriteOutcome>();
    shared::<HandlerRegistration>();
    shared::<HandlerExit>();
    error::<ParseNamespacedNameError>();
    error::<ParseVersionError>();
    error::<IndexError>();
    error::<MissingIndex>();
    error::<DuplicateIndex>();
    error::<WaitForError>();
    error::<Stopped>();
}

/// The futures without a name can be sent and shared. That of an event handler can be if the function can be.
#[test]
fn futures_can_be_sent_and_shared() {
    fn future(_: impl Future + Send + Sync + Unpin) {}
    let schema = Schema::new(|text: &String| text.clone(), |_| Version::ZERO);
    let store = Store::builder(schema).build().unwrap();
    future(store.wait_for_version(Version::ZERO));
    future(store.wait_for_key(String::new(), Version::ZERO));
    future(store.subscribe().next());
    future(store.subscription().max_pending(NonZeroUsize::MIN).subscribe().next());
    future(store.subscribe().for_each(drop).1);
}

#[test]
fn errors_describe_their_cause() {
    let key = |text: &str| text.parse::<NamespacedName>().unwrap_err().to_string();
    assert_eq!(key(""), "\"\" is not a key `namespace/name` or `name`: the key is empty");
    assert!(key("/name").ends_with("the namespace before the slash is empty"));
    assert!(key("namespace/").ends_with("the name after the slash is empty"));
    assert!(key("a/b/c").ends_with("there is more than one slash"));
    assert!(NamespacedName::new("", "name").is_err() && NamespacedName::new("a", "b/c").is_err());
    assert!(NamespacedName::cluster_scoped("a/b").unwrap_err().to_string().ends_with("holds a slash"));
    for bad in ["-1", "+1", "1.0", " 1", "18446744073709551616"] {
        assert!(bad.parse::<Version>().unwrap_err().to_string().starts_with(&format!("{bad:?} is not")));
    }
    assert_eq!("".parse(), Ok(Version::ZERO));
    assert_eq!("18446744073709551615".parse(), Ok(Version::new(u64::MAX)));

    let schema = Schema::new(|text: &String| text.clone(), |_| Version::ZERO);
    let (one, two) = (Index::new("i", |text: &String| text.len()), Index::new("i", String::clone));
    let duplicate = Store::builder(schema).index(&one).index(&two).build().unwrap_err();
    assert_eq!((duplicate.name(), duplicate.to_string().as_str()), ("i", "two indexes are called \"i\""));
    let store = Store::builder(schema).index(&one).build().unwrap().into_shared();
    let missing = store.by_index(&two, "a").unwrap_err();
    assert_eq!(missing.to_string(), "the store has no index \"i\" of this kind");
    assert_eq!(IndexError::new("why").source().unwrap().to_string(), "why");
    assert!(WaitForError::Rewound(Version::new(3)).to_string().ends_with("version 3"));
}

/// The counterpart of client-go's `TestObjectNames`: random strings of a few letters and slashes.
#[test]
fn keys_round_trip() {
    let mut random = Random::new(1);
    let mut good = 0;
    for _ in 0..10_000 {
        let len = random.below(8) as usize;
        let text: String = (0..len).map(|_| b"abcdefghi/"[random.below(10) as usize] as char).collect();
        let slashes = text.matches('/').count();
        match text.parse::<NamespacedName>() {
            Ok(key) => {
                good += 1;
                assert_eq!((key.to_string(), key.as_str()), (text.clone(), text.as_str()));
                let again = match key.namespace() {
                    Some(namespace) => NamespacedName::new(namespace, key.name()),
                    None => NamespacedName::cluster_scoped(key.name()),
                };
                assert_eq!(again.unwrap(), key);
                assert_eq!(slashes, usize::from(key.namespace().is_some()));
            }
            Err(_) => assert!(slashes > 1 || text.is_empty() || text.starts_with('/') || text.ends_with('/')),
        }
    }
    assert!(good > 1_000, "{good} were keys");
}
