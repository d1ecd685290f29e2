//! PURE. The requests of a reflector, which its caller performs, and the verdicts on pages and events.

use std::fmt;

use flyball_sync::Nanos;

use crate::{ListRequest, SourceErrorKind, Version, WatchRequest};

/// The request that the caller must perform until the deadline.
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

/// The action that the caller must perform with the reported page or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EventVerdict {
    /// Drop the page or event.
    Ignore,
    /// Apply the event to the store.
    Apply,
    /// Stage the items of a page, or the object of an event, in the partial list; for a `Deleted` event, remove the object from the list.
    Stage,
    /// Stage the items of the page, if there is one, then replace the store's content with the list, at this version.
    Publish(Version),
}

/// The current activity of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReflectorPhase {
    /// The reflector lists, in pages or as a stream.
    Listing,
    /// The reflector watches, opens a watch, or pauses before the next watch because the last watch ended early.
    Watching,
    /// The reflector waits after a failure.
    Waiting {
        /// The end of the wait.
        until: Nanos,
        /// The cause of the wait.
        cause: BackoffCause,
    },
}

/// The cause of a reflector's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackoffCause {
    /// The source answered with an error.
    Failed(SourceErrorKind),
    /// The source did not answer in time.
    TimedOut,
    /// A watch ended soon after it was opened, without a new event.
    ShortWatch,
    /// A streaming list ended before it was complete.
    Interrupted,
    /// A watch ended, and no version is known to resume from.
    Unversioned,
    /// A user's function panicked. If it panicked on a single object, no wait follows.
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
