//! PURE. The requests that the caller of a reflector performs, and the reflector's verdicts on pages and events.

use std::fmt;

use flyball_sync::Nanos;

use crate::{ListRequest, SourceErrorKind, Version, WatchRequest};

/// The request that the caller must perform next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorRequest {
    /// List, then call `page` or `list_failed`.
    List(ListRequest),
    /// Open a watch, then call `watch_opened` or `watch_failed`.
    Watch(WatchRequest),
    /// Read the open watch, and call `event`, `watch_errored` or `watch_closed` for each result.
    Read,
    /// Wait until the deadline, then call `deadline_reached`.
    Wait,
}

/// What the caller must do with the page or event that it has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EventVerdict {
    /// Drop the page or event.
    Ignore,
    /// Apply the event to the store.
    Apply,
    /// Stage the items of a page, or the object of an event, in the partial list; for a `Deleted` event, remove the object from the list.
    Stage,
    /// If a page was reported, stage its items. Then replace the contents of the store with the list, at this version.
    Publish(Version),
}

/// What a reflector currently does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReflectorPhase {
    /// The reflector requests a list, in pages or as a stream.
    Listing,
    /// The reflector watches, opens a watch, or pauses before the next watch because the last watch ended early.
    Watching,
    /// The reflector waits after a failure.
    Waiting {
        /// The time at which the wait ends.
        until: Nanos,
        /// The cause of the wait.
        cause: BackoffCause,
    },
}

/// The cause of a reflector's wait, or of a failure after which it does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackoffCause {
    /// The source answered with an error. A list that repeats a continuation, and a list that could not be published because of a panic, count as an
    /// error of the kind [`Other`](SourceErrorKind::Other).
    Failed(SourceErrorKind),
    /// The source did not answer in time.
    TimedOut,
    /// A watch ended soon after it was opened, without a new event.
    ShortWatch,
    /// A streaming list ended before it was complete.
    Interrupted,
    /// A watch ended, and no version is known from which the next watch could resume.
    Unversioned,
    /// A user's function, the source or the timer panicked. If a user's function panicked on a single object, no wait follows.
    Panicked,
}

impl fmt::Display for BackoffCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(kind) => return kind.fmt(f),
            Self::TimedOut => "no answer in time",
            Self::ShortWatch => "very short watch",
            Self::Interrupted => "streaming list ended early",
            Self::Unversioned => "no version to resume from",
            Self::Panicked => "a function panicked",
        })
    }
}
