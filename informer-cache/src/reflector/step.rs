//! PURE. The requests and verdicts of a reflector, which its caller performs.

use std::fmt;

use flyball_sync::Nanos;

use crate::{ListRequest, SourceErrorKind, Version, WatchRequest};

/// The request that the caller has to perform until the deadline.
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

/// What the caller has to do with the page or event that it reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EventVerdict {
    /// Drop it.
    Ignore,
    /// Apply the event to the store.
    Apply,
    /// Add it to the half list: a page's items as they are; of an event the object put, or with `Deleted` taken out.
    Stage,
    /// Add the page, then replace the store's content by the list, at this version.
    Publish(Version),
}

/// What a reflector does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReflectorPhase {
    /// Lists, in pages or as a stream.
    Listing,
    /// Watches, opens a watch, or is about to, since the last one ended early.
    Watching,
    /// Waits after a failure.
    Waiting {
        /// Until when.
        until: Nanos,
        /// After which failure.
        cause: BackoffCause,
    },
}

/// Why a reflector waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackoffCause {
    /// The source answered with an error.
    Failed(SourceErrorKind),
    /// The source did not answer in time.
    TimedOut,
    /// A watch ended at once, without a new event.
    ShortWatch,
    /// A streaming list ended before it was complete.
    Interrupted,
    /// A watch ended, and no version is known to resume from.
    Unversioned,
    /// A function of the user's panicked. Where that was on one object, no wait follows.
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
