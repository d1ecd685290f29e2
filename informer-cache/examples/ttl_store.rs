//! A cache of a DNS resolver's answers: a store whose objects expire, with an index and a subscription.
//!
//! `cargo run -p flyball-informer-cache --example ttl_store`

use std::error::Error;
use std::time::Duration;

use flyball_informer_cache::{Index, TtlEntry, TtlStore};
use flyball_sync::ManualClock;

struct Answer {
    name: &'static str,
    address: &'static str,
    ttl: Duration,
}

static BY_ADDRESS: Index<TtlEntry<Answer>, &str> = Index::new("address", |answer| answer.address);

fn main() -> Result<(), Box<dyn Error>> {
    // In production, do not set a clock, or set the clock that the rest of the program uses.
    let clock = ManualClock::new();
    let answers = TtlStore::builder(|answer: &TtlEntry<Answer>| answer.name)
        .ttl_with(|answer| Some(answer.ttl))
        .index(&BY_ADDRESS)
        .clock(clock.clone())
        .build()?;
    let mut changes = answers.subscribe();
    let answer = |name, address, seconds| Answer { name, address, ttl: Duration::from_secs(seconds) };
    answers.upsert(answer("a.example", "10.0.0.1", 30));
    answers.upsert(answer("b.example", "10.0.0.1", 60));

    clock.advance(Duration::from_secs(45));
    // Reads never return an expired object, even if it is not evicted yet.
    assert!(answers.get("a.example").is_none());
    assert_eq!(answers.by_index(&BY_ADDRESS, "10.0.0.1")?.len(), 1);
    // Subscribers receive the deletion when the object is evicted, which happens during a later write or in `evict_expired`.
    answers.evict_expired();
    while let Some(change) = changes.try_next() {
        println!("{:?} {}", change.kind(), change.key());
    }
    Ok(())
}
