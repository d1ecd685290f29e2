//! PURE. How a reflector watches: the versions of events, streaming lists, and the reaction to a failed watch.

use std::time::Duration;

use flyball_sync::Nanos;

use super::backoff::spread;
use super::{BackoffCause, EventVerdict, REOPENED, Reflector, State, Then, Watching};
use crate::{SourceErrorKind, Version, WatchEvent, WatchRequest};

impl Reflector {
    /// Handles an opened watch. The next request is to read it.
    pub fn watch_opened(&mut self, now: Nanos) {
        let State::Opening(request) = &self.state else { return };
        let closes = request.timeout.saturating_add(self.config.watch_timeout_grace);
        if request.streaming_list {
            self.deadline = now + self.config.streaming_list_timeout;
            self.state = State::Streaming { opened: now, closes };
            return;
        }
        let ordered = request.from_version != Version::ZERO;
        let repeats = (request.from_version < self.version).then_some(self.version);
        let closes = now + closes;
        self.unopened = 0;
        self.deadline =
            if repeats.is_some() { closes.min(now + self.config.request_timeout) } else { closes };
        self.state = State::Watching(Watching { opened: now, closes, repeats, news: false, ordered });
    }

    /// Handles a plain watch that was not opened before the deadline.
    pub(super) fn watch_not_opened(&mut self, now: Nanos, random: u64) {
        // Without a version, the next watch would start at any state, and would not deliver the deletions since the list.
        let reopens = self.complete_version() != Version::ZERO && self.unopened < REOPENED;
        self.unopened = if reopens { self.unopened + 1 } else { 0 };
        let then = if reopens { Then::Watch } else { Then::List };
        self.wait(BackoffCause::TimedOut, then, now, random);
    }

    /// Handles a watch that could not be opened.
    pub fn watch_failed(&mut self, kind: SourceErrorKind, now: Nanos, random: u64) {
        let State::Opening(request) = &self.state else { return };
        if request.streaming_list {
            return self.stream_failed(BackoffCause::Failed(kind), now, random);
        }
        let then = match kind {
            // Without a version, the next watch would start at any state, and would not deliver the deletions since the list.
            _ if self.complete_version() == Version::ZERO => Then::List,
            SourceErrorKind::TooManyRequests { .. } | SourceErrorKind::ConnectionRefused => Then::Watch,
            _ => Then::List,
        };
        self.watch_lost(kind, then, now, random);
    }

    /// Handles an event of the open watch. `event` contains the version of the object instead of the object itself.
    ///
    /// This takes O(1) time, and needs neither the current time nor a random number, because it is called for every event.
    pub fn event(&mut self, event: WatchEvent<Version>) -> EventVerdict {
        match &mut self.state {
            State::Watching(watching) => {
                let (WatchEvent::Added(version)
                | WatchEvent::Modified(version)
                | WatchEvent::Deleted(version)
                | WatchEvent::Bookmark(version)
                | WatchEvent::InitialListEnd(version)) = event;
                let addition = matches!(event, WatchEvent::Added(_));
                if !watching.ordered && addition {
                    watching.news = true;
                    return EventVerdict::Apply;
                }
                watching.ordered |= version != Version::ZERO;
                let is_bookmark = matches!(event, WatchEvent::Bookmark(_) | WatchEvent::InitialListEnd(_));
                if let Some(repeated) = watching.repeats.filter(|repeated| version >= *repeated) {
                    if version == repeated && !is_bookmark {
                        (watching.repeats, self.deadline) = (None, watching.closes);
                    } else {
                        // The source does not have the change that it delivered before. The caller checks the deadline after this batch.
                        self.deadline = watching.opened;
                    }
                }
                if version > self.version {
                    (self.version, self.complete) = (version, false);
                    watching.news = true;
                }
                // A bookmark is delivered after every change up to its version.
                self.complete |= is_bookmark && version == self.version;
                // The caller compares the event with the stored object of its key. The reflector's version only determines where the next watch begins.
                EventVerdict::Apply
            }
            State::Streaming { opened, closes } => match event {
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                    EventVerdict::Stage
                }
                // A plain bookmark does not mean that all existing objects have been delivered.
                WatchEvent::Bookmark(_) => EventVerdict::Ignore,
                WatchEvent::InitialListEnd(version) => {
                    // The streaming list continues as a plain watch.
                    let (opened, closes) = (*opened, *closes);
                    self.publish(version);
                    let (closes, ordered) = (opened + closes, version != Version::ZERO);
                    self.deadline = closes;
                    self.state =
                        State::Watching(Watching { opened, closes, repeats: None, news: true, ordered });
                    EventVerdict::Publish(version)
                }
            },
            _ => EventVerdict::Ignore,
        }
    }

    /// Handles an error of the open watch. The error has ended the watch.
    pub fn watch_errored(&mut self, kind: SourceErrorKind, now: Nanos, random: u64) {
        match self.state {
            State::Streaming { .. } => self.stream_failed(BackoffCause::Failed(kind), now, random),
            State::Watching(watching) => {
                let then = match kind {
                    // Without a version, the next watch would start at any state, and would not deliver the deletions between the two watches.
                    _ if self.complete_version() == Version::ZERO => Then::List,
                    // The next watch would begin after the version that the source has not delivered again.
                    _ if watching.repeats.is_some_and(|repeated| repeated <= self.complete_version()) => {
                        Then::List
                    }
                    SourceErrorKind::TooManyRequests { .. } | SourceErrorKind::ConnectionRefused => {
                        Then::Watch
                    }
                    SourceErrorKind::Internal if self.tolerates_internal(now) => Then::Watch,
                    _ => Then::List,
                };
                self.watch_lost(kind, then, now, random);
            }
            _ => {}
        }
    }

    /// Handles the normal end of the open watch.
    pub fn watch_closed(&mut self, now: Nanos, random: u64) {
        match self.state {
            State::Streaming { .. } => self.wait(BackoffCause::Interrupted, Then::List, now, random),
            State::Watching(watching) => {
                // By the contract of a source, a watch does not end normally between two changes of one version.
                self.complete = true;
                self.watch_ended(watching, now, random);
            }
            _ => {}
        }
    }

    /// Handles the end of a watch that is not a failure of the source: the source has closed it, or it has reached its maximum age.
    pub(super) fn watch_ended(&mut self, watching: Watching, now: Nanos, random: u64) {
        let may_reopen = watching.opened + self.config.min_watch_interval;
        let short = now < may_reopen;
        if watching.repeats.is_some() {
            self.list_or_stream(now, random);
        } else if short && !watching.news && !self.polls {
            self.wait(BackoffCause::ShortWatch, Then::List, now, random);
        } else if self.complete_version() == Version::ZERO {
            self.wait(BackoffCause::Unversioned, Then::List, now, random);
        } else if short {
            self.deadline = may_reopen;
            self.state = State::Pausing;
        } else {
            self.watch_restarts += 1;
            self.watch(now, random);
        }
    }

    pub(super) fn list_or_stream(&mut self, now: Nanos, random: u64) {
        if !self.config.streaming_lists || self.stream_missed {
            return self.list(now);
        }
        let from = if self.unusable { Version::ZERO } else { self.version };
        self.open(
            WatchRequest {
                from_version: from,
                streaming_list: true,
                timeout: self.min_watch_timeout(random),
            },
            now,
        );
    }

    pub(super) fn stream_failed(&mut self, cause: BackoffCause, now: Nanos, random: u64) {
        match cause {
            BackoffCause::Failed(
                SourceErrorKind::TooManyRequests { .. } | SourceErrorKind::ConnectionRefused,
            ) => {
                self.wait(cause, Then::List, now, random);
            }
            BackoffCause::Failed(SourceErrorKind::Expired | SourceErrorKind::VersionTooLarge)
                if !self.retried =>
            {
                self.retry_most_recent();
                self.list_or_stream(now, random);
            }
            _ => {
                self.failures_without_wait += 1;
                self.list(now);
            }
        }
    }

    /// Handles an error that has ended a plain watch, or that has prevented it from being opened.
    fn watch_lost(&mut self, kind: SourceErrorKind, then: Then, now: Nanos, random: u64) {
        if kind == SourceErrorKind::Expired && self.version == self.listed {
            // The source returned this version with a list, and then rejected it for the watch. A further list "not older than" this version might
            // return the same version every time.
            self.unusable = true;
        }
        self.wait(BackoffCause::Failed(kind), then, now, random);
    }

    fn tolerates_internal(&mut self, now: Nanos) -> bool {
        let fresh =
            self.internal.is_none_or(|(_, last)| now.since(last) >= self.config.internal_error_reset_after);
        let first = self.internal.filter(|_| !fresh).map_or(now, |(first, _)| first);
        let tolerated = !self.config.max_internal_error_retry_duration.is_zero()
            && now.since(first) <= self.config.max_internal_error_retry_duration;
        self.internal = tolerated.then_some((first, now));
        tolerated
    }

    pub(super) fn watch(&mut self, now: Nanos, random: u64) {
        let timeout = self.min_watch_timeout(random);
        self.open(
            WatchRequest { from_version: self.complete_version(), streaming_list: false, timeout },
            now,
        );
    }

    fn open(&mut self, request: WatchRequest, now: Nanos) {
        self.deadline = now + self.config.request_timeout;
        self.state = State::Opening(request);
    }

    fn min_watch_timeout(&self, random: u64) -> Duration {
        spread(self.config.min_watch_timeout, random)
    }
}
