//! What a script asks, and what is answered.

use std::collections::BTreeMap;

/// A line for the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the names of the operations")]
pub enum QueueLine {
    Config { base_ms: u64, max_ms: u64 },
    Add(String),
    AddAfter(String, u64),
    AddRateLimited(String),
    Get,
    Done(String),
    Forget(String),
    Requeues(String),
    Len,
    Advance(u64),
    Shutdown,
    ShuttingDown,
}

/// A line for a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the names of the operations")]
pub enum LimiterLine {
    Config(LimiterConfig),
    When(String),
    Forget(String),
    Requeues(String),
}

/// A line for a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the names of the operations")]
pub enum StoreLine {
    Index(String),
    Upsert(String, StoreObject),
    Delete(String),
    /// A complete list by key, and its version.
    Replace(BTreeMap<String, StoreObject>, String),
    Get(String),
    Keys,
    /// The name of an index, and a value.
    ByIndex(String, String),
    Values(String),
}

/// What a script stores: an object of JSON, in which indexes find their values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreObject {
    /// As JSON.
    pub text: String,
    /// Its members; `None` for what is no list of strings, and can have no values.
    pub members: BTreeMap<String, Option<Vec<String>>>,
}

/// Which limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimiterConfig {
    /// Doubles with each failure of a key.
    Exponential {
        /// The first wait.
        base_ms: u64,
        /// The longest.
        max_ms: u64,
    },
    /// Two waits.
    FastSlow {
        /// Of the first failures.
        fast_ms: u64,
        /// Of all others.
        slow_ms: u64,
        /// How many are the first.
        fast: u32,
    },
    /// The longest wait of these.
    MaxOf(Vec<Self>),
}

/// The answer to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to say.
    Done,
    /// A key was handed out.
    Key(String),
    /// None is there.
    Empty,
    /// None will be.
    Shutdown,
    /// How many.
    Number(u64),
    /// Whether.
    Flag(bool),
    /// How long, in nanoseconds.
    Wait(u64),
    /// An object, as JSON.
    Object(String),
    /// There is no such object.
    Absent,
    /// Keys or values, sorted.
    List(Vec<String>),
    /// There is no such index.
    MissingIndex,
    /// The line was not valid, or what it asked for is not.
    Error,
}
