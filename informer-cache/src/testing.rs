//! EDGE. Sources for tests of informers and of code built on them. They need no cluster, no network and no sleep.
//!
//! A [`TestServer`] has its own state and behaves like a real server, with faults on request: use it to test the *results* of changes. A
//! [`ScriptedSource`] returns exactly the scripted responses: use it to test the *requests* of an informer.
//!
//! [`check_source`] checks that a source of your own keeps the contract.
//!
//! A [`TestServer`] and a [`ScriptedSource`] implement [`Source`](crate::Source). On a [`ManualClock`](flyball_sync::ManualClock), time passes only
//! when the test advances it.

mod check;
mod scripted;
mod server;

pub use self::check::{SourceFixture, SourceRule, SourceViolation, check_source};
pub use self::scripted::{ScriptedSource, ScriptedWatch, SourceRequest};
pub use self::server::{Faults, TestServer, TestServerWatch};
