//! PURE. The state machine with which an informer keeps a store up to date with a source. It decides which request comes next, and how each response
//! changes the store.
//!
//! The state machine does no I/O, and has no clock and no source of randomness: [`step`](Self::step) returns the next request, and the other methods
//! take the response, the time and a random number. An informer performs the requests; a test can simulate them.
//!
//! | state | page | list failed | watch opened | watch failed | event | watch broke | watch closed | deadline |
//! |---|---|---|---|---|---|---|---|---|
//! | Listing | a part of a page: new deadline; last page: publish → Opening; other page: stage; repeated continuation → Waiting (list) | page ≥ 2 expired: full list, once; version unusable: most recent list, once; else → Waiting (list) | | | | | | first page of a list not older than a version: version unusable; → Waiting (list) |
//! | Opening | | | → Watching | 429, refused → Waiting (watch); else, or without a version → Waiting (list) | | | | → Waiting (watch), twice in a row; else, or without a version → Waiting (list) |
//! | Watching | | | | | apply | 429, refused, tolerated internal → Waiting (watch); else, or without a version → Waiting (list) | → Opening; short → Pausing; short and without a new event (unless the source polls), or without a version → Waiting (list); a change was not repeated → list | as watch closed |
//! | Pausing | | | | | | | | → Opening |
//! | Waiting | | | | | | | | (list) → Listing; (watch) → Opening |
//! | Opening (streaming list) | | | → Streaming | 429, refused → Waiting (list); version unusable: most recent list, once; else → Listing | | | | → Listing |
//! | Streaming | | | | | an object: stage; `InitialListEnd`: publish → Watching | as watch failed in the row above | → Waiting (list) | → Listing; no streaming list from then on |
//!
//! Each column is a call that reports a response, an event or the deadline. In the cells, `429`, `refused` and `internal` are kinds of errors, and a
//! watch is `short` if it was open for less than `min_watch_interval`. `list` is Listing or, if streaming lists are enabled, Opening (streaming
//! list). In a blank cell, the state has no request to which the call could belong, so the call changes nothing. If streaming lists are enabled,
//! Opening (streaming list) follows Waiting (list), except after a streaming list that ended early. The rules are client-go's
//! (`tools/cache/reflector.go`) where users depend on them. Intentional differences: if a watch expires at the version that was just listed, the most
//! recent list is requested next (kubernetes#133810); a plain list follows a streaming list that ended early or missed its deadline (kubernetes#140890);
//! failed requests are retried immediately only a limited number of times; and there is a deadline for each request, each watch and each streaming
//! list. A client may repeat a refused request by itself until that deadline, so a deadline is handled as if the answer had been the refusal that such
//! a client hides: the version may be unusable for a list, and the server too busy for a watch.
//!
//! # Invariants
//! 1. A response to a request that is not pending changes nothing. A call of `deadline_reached` before the deadline changes nothing, either. Every
//!    state has a deadline.
//! 2. The version decreases only when a list is published, which sets `listed` to the same version. So `listed ≤ version`.
//! 3. A partial list exists only in the state Listing, after the first page, and in the state Streaming. It is published or discarded as a whole.
//! 4. A plain watch starts only after a list has been published. It starts from the newest version up to which every change was received: the newest
//!    known version if it is that of a list or a bookmark, or if the last watch ended normally; otherwise the version before it. In the second case,
//!    the source must deliver the newest version again, before any newer one and within the time limit of a request. If it does not, its history is
//!    another one, for example because it was restored to exactly the version before, and a list is requested.
//! 5. At most four times in a row, a failed request is followed by the next request without a wait or a published list in between: after a streaming
//!    list, a page, the full list, and a page of the most recent list.
//! 6. If a watch ended normally and lasted at least `min_watch_interval`, the next watch may follow immediately. If it was shorter and is not a
//!    failure, the reflector pauses for the rest of that interval. After a failure, the backoff determines the wait instead, which may be shorter.
//! 7. The most recent list is requested only while the known version is unusable: the source has rejected it, or has not answered a list of it in
//!    time. The one exception is the first list, if `initial_list_most_recent` is set.

mod backoff;
mod config;
mod event;
mod listing;
mod source;
mod source_error;
mod source_request;
mod step;
mod watching;

use std::collections::BTreeSet;
use std::time::Duration;

use flyball_sync::Nanos;

pub use self::config::{InvalidReflectorConfig, ReflectorBackoff, ReflectorConfig};
pub use self::event::WatchEvent;
pub use self::source::{Source, WatchStream};
pub use self::source_error::{SourceError, SourceErrorKind};
pub use self::source_request::{ListRequest, ListVersion, Page, WatchRequest};
pub use self::step::{BackoffCause, EventVerdict, ReflectorPhase, ReflectorRequest};

use self::backoff::Backoff;
use crate::Version;

/// A state machine that decides which request to a source comes next, and how each response changes the store.
///
/// The caller repeats two steps. First it performs the request that [`step`](Self::step) returns, but for no longer than until the
/// [`deadline`](Self::deadline). Then it calls the method that reports the result. The caller also owns the partial list: it adds items on
/// [`EventVerdict::Stage`] and [`EventVerdict::Publish`], and drops the list as soon as [`has_partial_list`](Self::has_partial_list) returns `false`.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Reflector, ReflectorConfig, ReflectorRequest, EventVerdict, Version};
/// use flyball_sync::Nanos;
///
/// let (now, random) = (Nanos::ZERO, 0);
/// let mut reflector = Reflector::new(ReflectorConfig::default(), now, random)?;
/// let ReflectorRequest::List(request) = reflector.step() else { panic!("lists first") };
/// assert_eq!(request.limit, Some(500));
/// assert_eq!(reflector.page(Version::new(7), None, now, random), EventVerdict::Publish(Version::new(7)));
/// let ReflectorRequest::Watch(request) = reflector.step() else { panic!("then watches") };
/// assert_eq!(request.from_version, Version::new(7));
/// # Ok::<(), flyball_informer_cache::InvalidReflectorConfig>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflector {
    config: ReflectorConfig,
    state: State,
    deadline: Nanos,
    backoff: Backoff,
    /// The newest version that was received in an event or published with a list; `ZERO` if there is none.
    version: Version,
    /// Whether every change of `version` was received. An event shows only that the changes before its version were, because several changes may have
    /// its version, and the watch may be interrupted between them.
    complete: bool,
    /// The version of the last published list.
    listed: Version,
    /// Whether the source has rejected `version`, either for a list, or for a watch that started at the version of the last list; or has not answered
    /// a list not older than `version` in time. Also true before the first list, if `initial_list_most_recent` is set.
    unusable: bool,
    /// How many watches in a row, since the last opened watch or published list, have missed the deadline for being opened.
    unopened: u8,
    /// Whether the source polls. If it does, a watch that ends early and without an event is not a failure.
    polls: bool,
    /// Whether a list of `ListVersion::Any` has arrived in pages, which means that the source has no cache from which it answers. Only lists of this
    /// version count: any source, even one with a cache, may read the most recent list from its storage, in pages.
    paged: bool,
    /// Whether a streaming list has missed its deadline.
    stream_missed: bool,
    /// Whether the source has already rejected a version and the most recent list was requested immediately. Such a retry is made at most once until
    /// a wait or a published list.
    retried: bool,
    /// The number of failed requests since the last wait or published list. Only for `check`.
    failures_without_wait: u8,
    /// The times of the first and the last error in the current series of tolerated internal errors.
    internal: Option<(Nanos, Nanos)>,
    lists: u64,
    watch_restarts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Listing(Listing),
    Opening(WatchRequest),
    Streaming {
        opened: Nanos,
        closes: Duration,
    },
    Watching(Watching),
    /// A watch has ended normally, but it is too early to open the next one.
    Pausing,
    Waiting {
        cause: BackoffCause,
        then: Then,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    requested: ListVersion,
    /// Whether the list is requested in one piece because a continuation has expired.
    full: bool,
    /// The lowest version of all pages so far. A watch that starts at this version misses no change. `None` before the first page.
    oldest: Option<Version>,
    continuation: Option<String>,
    /// The continuations of all pages of this list so far.
    continuations: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watching {
    opened: Nanos,
    /// The time at which the watch reaches its maximum age.
    closes: Nanos,
    /// The version whose changes must be delivered again, because the watch began before it. `None` after the first of them.
    repeats: Option<Version>,
    /// Whether the watch has delivered an event with a new version, or an object that existed when the watch began.
    news: bool,
    /// Whether the events now arrive in the order of their versions. A watch that started without a version first delivers the existing objects, in
    /// arbitrary order; until it has done so, this is false.
    ordered: bool,
}

/// The action after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    List,
    Watch,
}

impl Reflector {
    /// Creates a reflector that knows no version yet, so it starts with a list.
    ///
    /// # Errors
    /// Returns an error if [`validate`](ReflectorConfig::validate) rejects the configuration.
    pub fn new(config: ReflectorConfig, now: Nanos, random: u64) -> Result<Self, InvalidReflectorConfig> {
        config.validate()?;
        let waiting = State::Waiting { cause: BackoffCause::TimedOut, then: Then::List };
        let mut reflector = Self {
            config,
            state: waiting,
            deadline: now,
            backoff: Backoff::new(config.backoff),
            version: Version::ZERO,
            complete: true,
            listed: Version::ZERO,
            unusable: config.initial_list_most_recent,
            unopened: 0,
            polls: false,
            paged: false,
            stream_missed: false,
            retried: false,
            failures_without_wait: 0,
            internal: None,
            lists: 0,
            watch_restarts: 0,
        };
        reflector.list_or_stream(now, random);
        Ok(reflector)
    }

    /// Reports that the current request is sent now. Its time limit starts now, however long ago the reflector decided on the request.
    pub(crate) fn sent(&mut self, now: Nanos) {
        if let State::Listing(_) | State::Opening(_) = self.state {
            self.deadline = now + self.config.request_timeout;
        }
    }

    /// Sets whether the source [polls](crate::Source::is_polling). If it does, a watch that ends early and without an event is not a failure.
    #[must_use]
    pub const fn polling(mut self, polls: bool) -> Self {
        self.polls = polls;
        self
    }

    /// Returns the request to perform now.
    #[must_use]
    pub fn step(&self) -> ReflectorRequest {
        match &self.state {
            State::Listing(listing) => ReflectorRequest::List(self.list_request(listing)),
            State::Opening(request) => ReflectorRequest::Watch(request.clone()),
            State::Streaming { .. } | State::Watching(_) => ReflectorRequest::Read,
            State::Pausing | State::Waiting { .. } => ReflectorRequest::Wait,
        }
    }

    /// Returns the deadline of the current request. When the deadline has passed, call [`deadline_reached`](Self::deadline_reached).
    #[must_use]
    pub const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Returns the current phase, for status reports.
    #[must_use]
    pub fn phase(&self) -> ReflectorPhase {
        match &self.state {
            State::Listing(_) | State::Streaming { .. } => ReflectorPhase::Listing,
            State::Opening(request) if request.streaming_list => ReflectorPhase::Listing,
            State::Opening(_) | State::Watching(_) | State::Pausing => ReflectorPhase::Watching,
            State::Waiting { cause, .. } => ReflectorPhase::Waiting { until: self.deadline, cause: *cause },
        }
    }

    /// Returns the newest version that was received in an event or published with a list; [`Version::ZERO`] before the first list.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the newest version up to which every change was received, from which the next watch begins.
    pub(super) fn complete_version(&self) -> Version {
        Version::new(self.version.get() - u64::from(!self.complete))
    }

    /// Returns the number of published lists.
    #[must_use]
    pub const fn lists(&self) -> u64 {
        self.lists
    }

    /// Returns the number of watches that were requested after an earlier watch, without a list in between.
    #[must_use]
    pub const fn watch_restarts(&self) -> u64 {
        self.watch_restarts
    }

    /// Returns whether there is a partial list: a list that has begun and is not published yet. If this is `false`, the caller discards the staged
    /// objects.
    #[must_use]
    pub const fn has_partial_list(&self) -> bool {
        match &self.state {
            State::Listing(listing) => listing.oldest.is_some(),
            State::Streaming { .. } => true,
            _ => false,
        }
    }

    /// Reports that the time is `now`. Does nothing before the [deadline](Self::deadline).
    ///
    /// If the source did not respond in time, returns [`BackoffCause::TimedOut`], the cause of the failure. Returns `None` if a watch has reached its
    /// maximum age or a wait has ended, because neither is a failure of the source to respond.
    pub fn deadline_reached(&mut self, now: Nanos, random: u64) -> Option<BackoffCause> {
        if now < self.deadline {
            return None;
        }
        match &self.state {
            State::Listing(_) => self.list_failed_by(BackoffCause::TimedOut, now, random),
            State::Opening(request) if request.streaming_list => {
                self.stream_failed(BackoffCause::TimedOut, now, random)
            }
            State::Opening(_) => self.watch_not_opened(now, random),
            State::Streaming { .. } => {
                self.stream_missed = true;
                self.list(now);
            }
            State::Watching(watching) => {
                self.watch_ended(*watching, now, random);
                return None;
            }
            State::Waiting { cause: BackoffCause::Interrupted, .. } => {
                // The source may end every streaming list early.
                self.list(now);
                return None;
            }
            State::Waiting { then: Then::List, .. } => {
                self.list_or_stream(now, random);
                return None;
            }
            State::Pausing | State::Waiting { then: Then::Watch, .. } => {
                self.watch_restarts += 1;
                self.watch(now, random);
                return None;
            }
        }
        Some(BackoffCause::TimedOut)
    }

    fn publish(&mut self, version: Version) {
        self.version = version;
        self.complete = true;
        self.listed = version;
        self.unusable = false;
        self.unopened = 0;
        self.retried = false;
        self.failures_without_wait = 0;
        self.lists += 1;
    }

    fn wait(&mut self, cause: BackoffCause, then: Then, now: Nanos, random: u64) {
        self.deadline = now + self.backoff.failed(requested_wait(cause), now, random);
        self.retried = false;
        self.failures_without_wait = 0;
        self.state = State::Waiting { cause, then };
    }

    /// Sets the length of the current wait to `wait`, or to the minimum wait that the source has requested if that is longer.
    pub(crate) fn wait_for(&mut self, wait: Duration, now: Nanos) {
        if let State::Waiting { cause, .. } = &self.state {
            self.deadline = now + wait.max(requested_wait(*cause));
        }
    }

    /// Checks the invariants. O(1).
    ///
    /// # Errors
    /// Returns an error that names the violated invariant.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let demand =
            |holds: bool, claim: &str| if holds { Ok(()) } else { Err(format!("{claim}: {self:?}")) };
        demand(self.complete || !self.version.is_zero(), "a change has no version")?;
        demand(
            self.listed <= self.complete_version(),
            "2: the version is below the version of the last list",
        )?;
        demand(self.failures_without_wait <= 4, "5: a fifth request would fail without a wait")?;
        demand(!self.retried || self.unusable, "7: the most recent list is requested without need")?;
        match &self.state {
            State::Listing(listing) => {
                demand(
                    listing.oldest.is_some() == listing.continuation.is_some(),
                    "3: a first page and a continuation exist only together",
                )?;
                demand(
                    (listing.requested == ListVersion::MostRecent) == self.unusable,
                    "7: wrong list version",
                )?;
            }
            State::Opening(request) if request.streaming_list => {
                demand(self.config.streaming_lists && !self.stream_missed, "streaming lists are disabled")?;
                demand(
                    (request.from_version == Version::ZERO) >= self.unusable,
                    "7: wrong version of a streaming list",
                )?;
            }
            State::Opening(request) => {
                demand(
                    self.lists > 0 && request.from_version == self.complete_version(),
                    "4: a watch without a list",
                )?;
                demand(self.unopened <= REOPENED, "a watch is opened without end, and the store gets old")?;
            }
            State::Streaming { .. } => demand(self.config.streaming_lists, "streaming lists are disabled")?,
            State::Watching(watching) => {
                demand(self.lists > 0, "4: a watch without a list")?;
                demand(
                    watching.repeats.is_none()
                        || self.deadline <= watching.opened + self.config.request_timeout,
                    "4: a change that is not repeated in time is not missed",
                )?;
            }
            State::Pausing => {
                demand(
                    self.lists > 0 && self.complete_version() != Version::ZERO,
                    "4: a pause without a watch",
                )?;
            }
            State::Waiting { then, .. } => {
                demand(*then == Then::List || self.lists > 0, "4: a wait for a watch without a list")?;
                demand(self.failures_without_wait == 0 && !self.retried, "5: a wait resets no counter")?;
            }
        }
        demand(
            self.backoff.failures() > 0 || !matches!(self.state, State::Waiting { .. }),
            "a wait without a failure",
        )
    }
}

/// How often in a row a watch that was not opened in time is opened again before the next list. An overloaded server must not have to list for it;
/// but behind a proxy that holds back the answers to watches, only lists keep the store up to date.
const REOPENED: u8 = 2;

/// Returns the minimum wait that the source has requested.
fn requested_wait(cause: BackoffCause) -> Duration {
    match cause {
        BackoffCause::Failed(SourceErrorKind::TooManyRequests { retry_after }) => {
            retry_after.unwrap_or_default()
        }
        _ => Duration::ZERO,
    }
}
