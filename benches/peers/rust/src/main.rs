//! Runs one measurement on flyball's primitives or on another Rust library, and prints the figures as one JSON object.
//!
//! The Go program in `benches/peers/go` runs the same measurements on client-go and controller-runtime, with the same names, flags,
//! keys and random draws; `cargo xtask peers` runs both alternately. Keys are `Arc<str>` of 30 bytes. Keys and draws
//! are generated before the clock starts. If a run adds a key, the clone of the key's `Arc` is part of the add.

#![allow(clippy::disallowed_methods, reason = "a measurement is made on the machine's clock")]

mod allocations;
mod clock;
mod contended;
mod controller;
mod delay;
mod delaying;
mod fed;
mod fifo;
mod handover;
mod idle;
mod informer;
mod keys;
mod latency;
mod lateness;
mod limit;
mod memory;
mod options;
mod peer;
mod store;
mod system;
mod waiters;

use std::collections::BTreeMap;

use clap::Parser;

use crate::options::Options;

/// The figures of a run, by name.
type Figures = BTreeMap<&'static str, f64>;

fn main() {
    let options = Options::parse();
    println!("{}", serde_json::json!(options.run()));
}
