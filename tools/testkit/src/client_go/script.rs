//! The lines of a script, and the answers to them.

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
    /// The complete list of objects, by key, and the version of the list.
    Replace(BTreeMap<String, StoreObject>, String),
    Get(String),
    Keys,
    /// The name of an index, and a value.
    ByIndex(String, String),
    Values(String),
}

/// A JSON object in a script's store. An index reads its values from the member of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreObject {
    /// The object as JSON.
    pub text: String,
    /// The members of the JSON object, by name. A member that is not a list of strings is `None`; the index function fails for it.
    pub members: BTreeMap<String, Option<Vec<String>>>,
}

/// The configuration of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimiterConfig {
    /// A wait that doubles with each failure of a key.
    Exponential {
        /// The first wait.
        base_ms: u64,
        /// The longest wait.
        max_ms: u64,
    },
    /// The first failures of a key have one wait, and all later failures have a different wait.
    FastSlow {
        /// The wait after each of the first failures.
        fast_ms: u64,
        /// The wait after each later failure.
        slow_ms: u64,
        /// How many failures of a key are followed by the wait `fast_ms`, before the wait becomes `slow_ms`.
        fast: u32,
    },
    /// A limiter that returns the longest wait of the given limiters.
    MaxOf(Vec<Self>),
}

/// The answer to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The operation was executed and returns no value.
    Done,
    /// A key was handed out.
    Key(String),
    /// No key is queued.
    Empty,
    /// The queue is shut down, and no key is queued. In client-go, `done` may still queue a dirty key; with `Rule::ClosedMeansNothingComes`, no more
    /// keys will be queued.
    Shutdown,
    /// A number.
    Number(u64),
    /// A truth value.
    Flag(bool),
    /// A wait in nanoseconds.
    Wait(u64),
    /// An object, as JSON.
    Object(String),
    /// There is no such object.
    Absent,
    /// Keys or values, sorted.
    List(Vec<String>),
    /// There is no such index.
    MissingIndex,
    /// The line or the requested operation is invalid.
    Error,
}
