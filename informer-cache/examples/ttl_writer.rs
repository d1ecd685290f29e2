//! A cache of a DNS resolver's answers: a store whose objects expire, with an index and a subscription.
//!
//! `cargo run -p flyball-informer-cache --example ttl_writer`

use std::error::Error;
use std::time::Duration;

use flyball_informer_cache::{Index, Schema, Store, TtlWriter, Version};
use flyball_sync::ManualClock;

struct Answer {
    name: &'static str,
    address: &'static str,
}

static BY_ADDRESS: Index<Answer, &str> = Index::new("address", |answer| answer.address);

fn main() -> Result<(), Box<dyn Error>> {
    // The program owns the answers, so they have no version: a later write replaces an earlier one.
    let schema = Schema::new(|answer: &Answer| answer.name, |_| Version::ZERO);
    let writer = Store::builder(schema).index(&BY_ADDRESS).build()?;
    // In production, use `TokioTimer::current()` or `ThreadTimer::new()`, and spawn the sweeper.
    let clock = ManualClock::new();
    let (answers, _sweeper) = TtlWriter::new(writer, clock.timer());
    let mut changes = answers.subscribe();
    let ttl = |seconds| Some(Duration::from_secs(seconds));
    answers.upsert(Answer { name: "a.example", address: "10.0.0.1" }, ttl(30));
    answers.upsert(Answer { name: "b.example", address: "10.0.0.1" }, ttl(60));

    clock.advance(Duration::from_secs(45));
    // Here, the program sweeps by itself. The sweeper does it at each deadline.
    assert_eq!(answers.sweep(), 1);
    assert!(answers.get("a.example").is_none());
    assert_eq!(answers.by_index(&BY_ADDRESS, "10.0.0.1")?.len(), 1);
    while let Some(change) = changes.try_next() {
        println!("{:?} {}", change.kind(), change.key());
    }
    Ok(())
}
