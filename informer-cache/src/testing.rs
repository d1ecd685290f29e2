//! EDGE. Sources for tests of informers, and of code that uses informers. Such tests need no cluster, no network and no sleeping.
//!
//! A [`TestServer`] has its own state, behaves like a real server, and can inject faults. Use it to test the *results* of changes. A
//! [`ScriptedSource`] returns exactly the responses that the test has scripted. Use it to test the *requests* of an informer.
//!
//! [`check_source`] checks that your own source keeps the contract of [`Source`](crate::Source).
//!
//! A [`TestServer`] and a [`ScriptedSource`] implement [`Source`](crate::Source). With a [`ManualClock`](flyball_sync::ManualClock), time passes only
//! when the test advances the clock.

mod check;
mod scripted;
mod server;

pub use self::check::{SourceFixture, SourceRule, SourceViolation, check_source};
pub use self::scripted::{ScriptedSource, ScriptedWatch, SourceRequest};
pub use self::server::{Faults, TestServer, TestServerWatch};
