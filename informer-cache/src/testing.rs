//! EDGE. Sources for tests of informers and of code built on them. No cluster, no network, no sleep.
//!
//! A [`TestServer`] has its own state and behaves as a real server, with faults on request: for tests of the *results* of changes. A
//! [`ScriptedSource`] returns exactly the scripted responses: for tests of the *requests* of an informer.
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
