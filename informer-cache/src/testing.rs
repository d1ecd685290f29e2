//! EDGE. Sources for tests: of informers, and of what is built on them. No cluster, no network, no sleep.
//!
//! A [`TestServer`] has a state of its own and behaves as a real one does, with faults to order: for tests of *what* comes of changes. A
//! [`ScriptedSource`] says word for word what it was told to say: for tests of *how* an informer asks.
//!
//! [`check_source`] checks that a source of your own keeps the contract.
//!
//! Both are sources like any other: on a [`ManualClock`](flyball_sync::ManualClock) time passes when the test says so.

mod check;
mod scripted;
mod server;

pub use self::check::{SourceFixture, SourceRule, SourceViolation, check_source};
pub use self::scripted::{ScriptedSource, ScriptedWatch, SourceRequest};
pub use self::server::{Faults, TestServer, TestServerWatch};
