//! Decodes arbitrary bytes to a configuration and a sequence of inputs for a reflector, and checks each command that the reflector returns against an
//! independent implementation of the rules.
//!
//! The fuzz target `reflector_inputs` also uses this driver. The check uses only the public interface of the reflector: it records commands and
//! inputs, and derives from them which command must be next.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    EventVerdict, ListRequest, ListVersion, Reflector, ReflectorBackoff, ReflectorConfig, ReflectorPhase,
    ReflectorRequest, SourceErrorKind, Version, WatchEvent, WatchRequest,
};
use flyball_sync::Nanos;

const PAGE: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_secs(1);
const WATCH: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(2);
const STREAM: Duration = Duration::from_secs(4);
const INTERNAL_RESET: Duration = Duration::from_secs(20);
const BACKOFF: ReflectorBackoff = ReflectorBackoff {
    initial: Duration::from_millis(100),
    factor: 3,
    max: Duration::from_secs(1),
    jitter_percent: 50,
    reset_after: Duration::from_secs(5),
};

/// For each setting, how often each cell of the table (state, input) was hit.
pub type Cells = BTreeMap<(&'static str, &'static str, &'static str), u64>;

/// The names of the two values of each setting. The settings are in the order of the bits of a configuration.
pub const SETTINGS: [[&str; 2]; 6] = [
    ["no page size", "a page size"],
    ["internal errors relist", "internal errors are tolerated"],
    ["plain lists", "streaming lists"],
    ["pages by default", "unpaged by default"],
    ["any list first", "the most recent list first"],
    ["a watch is held open", "polls"],
];

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Expired,
    TooLarge,
    Busy(Option<u8>),
    Refused,
    Internal,
    Other,
}

impl Kind {
    fn real(self) -> SourceErrorKind {
        match self {
            Self::Expired => SourceErrorKind::Expired,
            Self::TooLarge => SourceErrorKind::VersionTooLarge,
            Self::Busy(after) => SourceErrorKind::TooManyRequests {
                retry_after: after.map(|seconds| Duration::from_secs(seconds.into())),
            },
            Self::Refused => SourceErrorKind::ConnectionRefused,
            Self::Internal => SourceErrorKind::Internal,
            Self::Other => SourceErrorKind::Other,
        }
    }

    /// Returns whether the same request must be sent again later after this error.
    fn later(self) -> bool {
        matches!(self, Self::Busy(_) | Self::Refused)
    }

    /// Returns whether this error reports that the requested version is not available.
    fn version(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge)
    }
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    None,
    Empty,
    Next,
    Same,
    Back,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    InitialListEnd,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Page(u8, Token),
    ListFailed(Kind),
    Opened,
    OpenFailed(Kind),
    Event(EventKind, u8),
    Broke(Kind),
    Closed,
    Pass(u16),
    Deadline,
    Progress,
}

impl Input {
    /// Chooses an input: often a response to the last request, sometimes any input.
    fn choose(input: &mut Unstructured<'_>, step: &ReflectorRequest) -> arbitrary::Result<Self> {
        let roll: u8 = input.arbitrary()?;
        Ok(match (roll % 16, step) {
            (0, _) => input.arbitrary()?,
            (1, _) => Self::Pass(input.arbitrary()?),
            (2..5, _) | (_, ReflectorRequest::Wait) => Self::Deadline,
            (5..8, ReflectorRequest::List(_)) => Self::ListFailed(input.arbitrary()?),
            (8, ReflectorRequest::List(_)) => Self::Progress,
            (_, ReflectorRequest::List(_)) => Self::Page(input.arbitrary()?, input.arbitrary()?),
            (5..8, ReflectorRequest::Watch(_)) => Self::OpenFailed(input.arbitrary()?),
            (_, ReflectorRequest::Watch(_)) => Self::Opened,
            (5, ReflectorRequest::Read) => Self::Broke(input.arbitrary()?),
            (6, ReflectorRequest::Read) => Self::Closed,
            (_, ReflectorRequest::Read) => Self::Event(input.arbitrary()?, input.arbitrary()?),
        })
    }

    fn label(self) -> &'static str {
        match self {
            Self::Page(..) => "page",
            Self::ListFailed(_) => "list failed",
            Self::Opened => "watch opened",
            Self::OpenFailed(_) => "watch failed",
            Self::Event(..) => "event",
            Self::Broke(_) => "watch broke",
            Self::Closed => "watch closed",
            Self::Pass(_) => "time",
            Self::Deadline => "deadline",
            Self::Progress => "progress",
        }
    }
}

/// Maps a byte to one of 24 versions, so that equal versions, and version 0 (no version), are common.
fn small(version: u8) -> u64 {
    u64::from(version % 24)
}

/// The command that the reflector has to return next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    List {
        requested: ListVersion,
        full: bool,
    },
    Page {
        token: String,
    },
    Open {
        from: u64,
    },
    OpenStream {
        from: u64,
    },
    /// Wait for the next page of the list that is being read.
    Rest,
    Read,
    /// Wait until the minimum time since the start of the last watch has passed, then open the next watch.
    Pause,
    /// Wait for at least this time, then continue with this command.
    Wait(Duration, Box<Expected>),
    /// Wait for at least this time, then list again, with the version that the fallback rules select.
    Relist(Duration),
}

/// The state that follows from the recorded commands and inputs.
#[derive(Debug)]
struct Checker {
    config: ReflectorConfig,
    polls: bool,
    known: u64,
    /// The newest version up to which every change was received.
    complete: u64,
    listed: u64,
    lists: u64,
    /// Whether `known` must not be requested, because the source has refused it since the last list, or has let a list of it time out, or because the
    /// configuration requires that the first list is the most recent one.
    unusable: bool,
    /// The number of watches that have timed out before they were opened, since the last opened watch or the last complete list.
    unopened: u32,
    paged: bool,
    stream_missed: bool,
    /// Whether an immediate list of the most recent version has been requested since the last wait or the last complete list.
    spent: bool,
    /// The number of requests that have failed since the last wait or the last complete list.
    row: u32,
    /// The state of the running list, in this and the following fields: the requested version, whether it has no page limit, the versions of its
    /// pages, and the continuation token of its next page.
    requested: ListVersion,
    full: bool,
    pages: Vec<u64>,
    token: Option<String>,
    /// All continuation tokens that the running list has returned so far.
    tokens: Vec<String>,
    /// The state of the running watch, in this and the following fields: its start version, its start time, its duration, whether it has delivered an
    /// event with a new version, whether it still delivers existing objects (in any order of their versions), and whether it is a streaming list.
    from: u64,
    opened: Nanos,
    lasts: Duration,
    news: bool,
    unordered: bool,
    streaming: bool,
    /// The version that the running watch must deliver again, and whether it has delivered something newer first.
    again: Option<u64>,
    lost: bool,
    /// The times of the first and the last internal error of a series of tolerated internal errors.
    internal: Option<(Nanos, Nanos)>,
    /// The command that follows when the current wait ends.
    then: Expected,
}

impl Checker {
    fn new(config: ReflectorConfig, polls: bool) -> Self {
        Self {
            config,
            polls,
            known: 0,
            complete: 0,
            listed: 0,
            lists: 0,
            unusable: config.initial_list_most_recent,
            unopened: 0,
            paged: false,
            stream_missed: false,
            spent: false,
            row: 0,
            requested: ListVersion::Any,
            full: false,
            pages: Vec::new(),
            token: None,
            tokens: Vec::new(),
            from: 0,
            opened: Nanos::ZERO,
            lasts: Duration::ZERO,
            news: false,
            unordered: false,
            streaming: false,
            again: None,
            lost: false,
            internal: None,
            then: Expected::Read,
        }
    }

    fn list_version(&self) -> ListVersion {
        match self.known {
            _ if self.unusable => ListVersion::MostRecent,
            0 => ListVersion::Any,
            known => ListVersion::NotOlderThan(Version::new(known)),
        }
    }

    fn plain_list(&self) -> Expected {
        Expected::List { requested: self.list_version(), full: false }
    }

    fn new_list(&self) -> Expected {
        match self.config.streaming_lists && !self.stream_missed {
            true => Expected::OpenStream { from: if self.unusable { 0 } else { self.known } },
            false => self.plain_list(),
        }
    }

    fn published(&mut self, version: u64) {
        (self.known, self.complete, self.listed) = (version, version, version);
        self.lists += 1;
        (self.unusable, self.spent, self.row, self.unopened) = (false, false, 0, 0);
    }

    fn busy(kind: Kind) -> Duration {
        match kind {
            Kind::Busy(after) => Duration::from_secs(after.unwrap_or(0).into()),
            _ => Duration::ZERO,
        }
    }

    /// Records that the source has refused the version of a list or streaming list. The next list requests the most recent version. If the source
    /// refuses this version, too, the reflector waits before the next attempt.
    fn most_recent(&mut self) {
        (self.spent, self.unusable) = (true, true);
        self.row += 1;
    }

    fn list_failed(&mut self, kind: Kind) -> Expected {
        if kind == Kind::Expired && self.token.is_some() && !self.full {
            self.row += 1;
            return Expected::List { requested: self.requested, full: true };
        }
        if kind.version() && !self.spent {
            self.most_recent();
            return self.plain_list();
        }
        Expected::Relist(Self::busy(kind))
    }

    fn stream_failed(&mut self, kind: Kind) -> Expected {
        if kind.later() {
            return Expected::Relist(Self::busy(kind));
        }
        if kind.version() && !self.spent {
            self.most_recent();
            return self.new_list();
        }
        self.row += 1;
        self.plain_list()
    }

    fn watch_lost(&mut self, kind: Kind, resumable: bool) -> Expected {
        if kind == Kind::Expired && self.known == self.listed {
            self.unusable = true;
        }
        match resumable {
            true => Expected::Wait(Self::busy(kind), Box::new(Expected::Open { from: self.complete })),
            false => Expected::Relist(Self::busy(kind)),
        }
    }

    fn closed(&self, now: Nanos) -> Expected {
        if self.again.is_some() {
            return self.new_list();
        }
        let short = now.since(self.opened) < SHORT;
        match short && !self.news && !self.polls || self.complete == 0 {
            true => Expected::Relist(Duration::ZERO),
            false if short => Expected::Pause,
            false => Expected::Open { from: self.complete },
        }
    }

    fn tolerated(&mut self, now: Nanos) -> bool {
        let (first, _) = match self.internal {
            Some((first, last)) if now.since(last) < INTERNAL_RESET => (first, last),
            _ => (now, now),
        };
        let window = self.config.max_internal_error_retry_duration;
        let tolerated = window > Duration::ZERO && now.since(first) <= window;
        self.internal = tolerated.then_some((first, now));
        tolerated
    }

    fn event(&mut self, event: EventKind, version: u64) -> (EventVerdict, Expected) {
        if self.streaming {
            return match event {
                EventKind::Added | EventKind::Modified | EventKind::Deleted => {
                    (EventVerdict::Stage, Expected::Read)
                }
                EventKind::Bookmark => (EventVerdict::Ignore, Expected::Read),
                EventKind::InitialListEnd => {
                    self.published(version);
                    (self.streaming, self.news, self.unordered) = (false, true, version == 0);
                    (EventVerdict::Publish(Version::new(version)), Expected::Read)
                }
            };
        }
        if self.unordered && event == EventKind::Added {
            self.news = true;
            return (EventVerdict::Apply, Expected::Read);
        }
        if version != 0 {
            self.unordered = false;
        }
        let bookmark = matches!(event, EventKind::Bookmark | EventKind::InitialListEnd);
        match self.again {
            Some(again) if version == again && !bookmark => (self.again, self.lost) = (None, false),
            Some(again) => self.lost |= version >= again,
            None => {}
        }
        if version > self.known {
            // More changes may have this version.
            (self.known, self.complete, self.news) = (version, version - 1, true);
        }
        if bookmark {
            self.complete = self.complete.max(version);
        }
        (EventVerdict::Apply, Expected::Read)
    }

    /// Returns the verdict and the command that must follow `input`, if `input` is a response to the request `step`; otherwise `None`.
    fn expected_after(
        &mut self,
        step: &ReflectorRequest,
        input: Input,
        now: Nanos,
        due: bool,
    ) -> Option<(EventVerdict, Expected)> {
        let silent = |want| Some((EventVerdict::Ignore, want));
        match (step, input) {
            (ReflectorRequest::List(_), Input::Page(version, token)) => {
                let token = token_text(token, self.token.as_deref());
                self.pages.push(small(version));
                match token {
                    Some(token) if !token.is_empty() && self.tokens.contains(&token) => {
                        silent(self.list_failed(Kind::Other))
                    }
                    Some(token) if !token.is_empty() => {
                        self.paged |= self.requested == ListVersion::Any;
                        self.token = Some(token.clone());
                        self.tokens.push(token.clone());
                        Some((EventVerdict::Stage, Expected::Page { token }))
                    }
                    _ => {
                        let version = self.pages.iter().copied().min().unwrap();
                        self.published(version);
                        Some((EventVerdict::Publish(Version::new(version)), Expected::Open { from: version }))
                    }
                }
            }
            (ReflectorRequest::List(_), Input::ListFailed(kind)) => silent(self.list_failed(kind)),
            (ReflectorRequest::List(_), Input::Progress) => silent(Expected::Rest),
            (ReflectorRequest::List(_), Input::Deadline) if due => {
                if matches!(self.requested, ListVersion::NotOlderThan(_)) && self.token.is_none() {
                    self.unusable = true;
                }
                silent(self.list_failed(Kind::Other))
            }
            (ReflectorRequest::Watch(request), Input::Opened) => {
                self.opened = now;
                self.lasts = request.timeout + GRACE;
                if !request.streaming_list {
                    self.unopened = 0;
                }
                self.again = (!request.streaming_list && self.from < self.known).then_some(self.known);
                self.lost = false;
                (self.news, self.unordered) = (false, self.from == 0);
                silent(Expected::Read)
            }
            (ReflectorRequest::Watch(request), Input::OpenFailed(kind)) if request.streaming_list => {
                silent(self.stream_failed(kind))
            }
            (ReflectorRequest::Watch(_), Input::OpenFailed(kind)) => {
                silent(self.watch_lost(kind, self.complete != 0 && kind.later()))
            }
            (ReflectorRequest::Watch(request), Input::Deadline) if due && request.streaming_list => {
                silent(self.stream_failed(Kind::Other))
            }
            (ReflectorRequest::Watch(_), Input::Deadline) if due => {
                self.unopened += 1;
                if self.complete != 0 && self.unopened <= 2 {
                    let again = Expected::Open { from: self.complete };
                    return silent(Expected::Wait(Duration::ZERO, Box::new(again)));
                }
                self.unopened = 0;
                silent(Expected::Relist(Duration::ZERO))
            }
            (ReflectorRequest::Read, Input::Event(event, version)) => Some(self.event(event, small(version))),
            (ReflectorRequest::Read, Input::Broke(kind)) if self.streaming => {
                silent(self.stream_failed(kind))
            }
            (ReflectorRequest::Read, Input::Broke(kind)) => {
                let versioned = self.complete != 0;
                let resumable = versioned
                    && !self.lost
                    && (kind.later() || kind == Kind::Internal && self.tolerated(now));
                silent(self.watch_lost(kind, resumable))
            }
            (ReflectorRequest::Read, Input::Closed) if self.streaming => {
                silent(Expected::Wait(Duration::ZERO, Box::new(self.plain_list())))
            }
            (ReflectorRequest::Read, Input::Closed) => {
                self.complete = self.known;
                silent(self.closed(now))
            }
            (ReflectorRequest::Read, Input::Deadline) if due && self.streaming => {
                self.stream_missed = true;
                silent(self.plain_list())
            }
            (ReflectorRequest::Read, Input::Deadline) if due => silent(self.closed(now)),
            (ReflectorRequest::Wait, Input::Deadline) if due => silent(self.then.clone()),
            _ => None,
        }
    }

    /// Compares the reflector's next command with the expected command.
    fn compare(&mut self, want: Expected, reflector: &Reflector, now: Nanos) {
        let until = reflector.deadline();
        match (want, reflector.step()) {
            (Expected::List { requested, full }, ReflectorRequest::List(request)) => {
                let limit = match self.config.page_size {
                    _ if full => None,
                    Some(size) => Some(size.get()),
                    None if matches!(requested, ListVersion::NotOlderThan(_)) && !self.paged => None,
                    None if self.config.unpaged => None,
                    None => Some(500),
                };
                assert_eq!(request, ListRequest { min_version: requested, limit, continuation: None });
                assert_eq!(until, now + PAGE);
                (self.requested, self.full, self.token, self.streaming) = (requested, full, None, false);
                self.tokens.clear();
                self.pages.clear();
                assert!(
                    !reflector.has_partial_list(),
                    "a partial list was kept after the start of another list"
                );
            }
            (Expected::Page { token }, ReflectorRequest::List(request)) => {
                assert_eq!(request.continuation, Some(token));
                assert_eq!(request.min_version, ListVersion::MostRecent);
                assert_eq!(request.limit.is_none(), self.full || self.unlimited());
                assert!(reflector.has_partial_list());
            }
            (Expected::Rest, ReflectorRequest::List(request)) => {
                assert_eq!(request.continuation, self.token);
                assert_eq!(until, now + PAGE);
                assert_eq!(reflector.has_partial_list(), self.token.is_some());
            }
            (
                Expected::Open { from },
                ReflectorRequest::Watch(WatchRequest { from_version: requested, streaming_list, timeout }),
            ) => {
                assert_eq!((requested.get(), streaming_list), (from, false));
                assert!((WATCH..=2 * WATCH).contains(&timeout), "{timeout:?}");
                assert_eq!(until, now + PAGE);
                (self.from, self.streaming) = (from, false);
                assert!(self.lists > 0, "a watch before any list");
                assert!(!reflector.has_partial_list());
            }
            (Expected::OpenStream { from }, ReflectorRequest::Watch(request)) => {
                assert_eq!((request.from_version.get(), request.streaming_list), (from, true));
                assert_eq!(until, now + PAGE);
                (self.from, self.streaming) = (from, true);
                assert!(!reflector.has_partial_list());
            }
            (Expected::Read, ReflectorRequest::Read) => {
                let limit = match self.again {
                    _ if self.streaming => STREAM,
                    Some(_) if self.lost => Duration::ZERO,
                    Some(_) => self.lasts.min(PAGE),
                    None => self.lasts,
                };
                assert_eq!(until, self.opened + limit);
                assert_eq!(reflector.has_partial_list(), self.streaming);
            }
            (Expected::Pause, ReflectorRequest::Wait) => {
                assert_eq!((until, reflector.phase()), (self.opened + SHORT, ReflectorPhase::Watching));
                self.then = Expected::Open { from: self.complete };
            }
            (Expected::Wait(least, then), ReflectorRequest::Wait) => self.waits(least, *then, reflector, now),
            (Expected::Relist(least), ReflectorRequest::Wait) => {
                (self.spent, self.row) = (false, 0);
                self.waits(least, self.new_list(), reflector, now);
            }
            (want, step) => panic!("expected {want:?}, not {step:?}"),
        }
        assert!(self.row <= 4, "too many requests in a row");
    }

    fn unlimited(&self) -> bool {
        let cached = matches!(self.requested, ListVersion::NotOlderThan(_)) && !self.paged;
        self.config.page_size.is_none() && (cached || self.config.unpaged)
    }

    fn waits(&mut self, least: Duration, then: Expected, reflector: &Reflector, now: Nanos) {
        (self.spent, self.row, self.streaming) = (false, 0, false);
        self.then = then;
        let wait = reflector.deadline().since(now);
        assert!(wait >= least.max(BACKOFF.initial), "{wait:?} is too short");
        assert!(wait <= least.max(BACKOFF.max + BACKOFF.max / 2), "{wait:?} is too long");
        assert!(!reflector.has_partial_list());
        assert!(
            matches!(reflector.phase(), ReflectorPhase::Waiting { until, .. } if until == reflector.deadline())
        );
    }
}

fn token_text(token: Token, last: Option<&str>) -> Option<String> {
    match token {
        Token::None => None,
        Token::Empty => Some(String::new()),
        Token::Next => Some(format!("{}+", last.unwrap_or_default())),
        Token::Back => Some("+".to_owned()),
        Token::Same => Some(last.unwrap_or("first").to_owned()),
    }
}

/// Decodes a configuration, and returns it with the bits that select its settings.
fn config(input: &mut Unstructured<'_>) -> arbitrary::Result<(ReflectorConfig, u8)> {
    let bits: u8 = input.arbitrary()?;
    let config = ReflectorConfig {
        page_size: NonZeroU32::new(3).filter(|_| bits & 1 != 0),
        unpaged: bits & 8 != 0,
        initial_list_most_recent: bits & 16 != 0,
        min_watch_timeout: WATCH,
        watch_timeout_grace: GRACE,
        request_timeout: PAGE,
        min_watch_interval: SHORT,
        max_internal_error_retry_duration: if bits & 2 != 0 {
            Duration::from_secs(30)
        } else {
            Duration::ZERO
        },
        internal_error_reset_after: INTERNAL_RESET,
        streaming_lists: bits & 4 != 0,
        streaming_list_timeout: STREAM,
        backoff: BACKOFF,
    };
    Ok((config, bits))
}

fn feed(
    reflector: &mut Reflector,
    input: Input,
    last: Option<&str>,
    now: Nanos,
    random: u64,
) -> Option<EventVerdict> {
    match input {
        Input::Page(version, token) => {
            return Some(reflector.page(Version::new(small(version)), token_text(token, last), now, random));
        }
        Input::Event(event, version) => {
            let version = Version::new(small(version));
            return Some(reflector.event(match event {
                EventKind::Added => WatchEvent::Added(version),
                EventKind::Modified => WatchEvent::Modified(version),
                EventKind::Deleted => WatchEvent::Deleted(version),
                EventKind::Bookmark => WatchEvent::Bookmark(version),
                EventKind::InitialListEnd => WatchEvent::InitialListEnd(version),
            }));
        }
        Input::ListFailed(kind) => reflector.list_failed(kind.real(), now, random),
        Input::Opened => reflector.watch_opened(now),
        Input::OpenFailed(kind) => reflector.watch_failed(kind.real(), now, random),
        Input::Broke(kind) => reflector.watch_errored(kind.real(), now, random),
        Input::Closed => reflector.watch_closed(now, random),
        Input::Progress => reflector.page_progressed(now),
        Input::Pass(_) | Input::Deadline => {
            let requested =
                matches!(reflector.step(), ReflectorRequest::List(_) | ReflectorRequest::Watch(_));
            let fails = now >= reflector.deadline() && (requested || reflector.has_partial_list());
            let failed = reflector.deadline_reached(now, random);
            assert_eq!(failed.is_some(), fails, "only a request or a streaming list can miss its deadline");
        }
    }
    None
}

fn label(reflector: &Reflector) -> &'static str {
    match reflector.step() {
        ReflectorRequest::List(_) => "Listing",
        ReflectorRequest::Watch(request) if request.streaming_list => "Opening (streaming list)",
        ReflectorRequest::Watch(_) => "Opening",
        ReflectorRequest::Read if reflector.has_partial_list() => "Streaming",
        ReflectorRequest::Read => "Watching",
        ReflectorRequest::Wait if reflector.phase() == ReflectorPhase::Watching => "Pausing",
        ReflectorRequest::Wait => "Waiting",
    }
}

/// Decodes `bytes`, and passes the inputs to a reflector. Panics if the reflector violates a rule.
pub fn run(bytes: &[u8], cells: &mut Cells) {
    let mut bytes = Unstructured::new(bytes);
    let Ok((config, bits)) = config(&mut bytes) else { return };
    let polls = bits & 32 != 0;
    let mut now = Nanos::new(1);
    let mut reflector = Reflector::new(config, now, 0).unwrap().polling(polls);
    let mut checker = Checker::new(config, polls);
    let first = checker.new_list();
    checker.compare(first, &reflector, now);
    while !bytes.is_empty() {
        let before = reflector.clone();
        let step = before.step();
        let Ok(input) = Input::choose(&mut bytes, &step) else { return };
        let random = bytes.arbitrary().unwrap_or(0) | u64::from(bytes.arbitrary::<u8>().unwrap_or(0)) << 56;
        match input {
            Input::Pass(millis) => now = now + Duration::from_millis(millis.into()),
            Input::Deadline => now = now.max(before.deadline()),
            _ => {}
        }
        let due = now >= before.deadline();
        let last = checker.token.clone();
        // An input `Pass` that advances the clock to the deadline or beyond has the same effect as the input `Deadline`.
        let effective = if matches!(input, Input::Pass(_)) && due { Input::Deadline } else { input };
        let verdict = feed(&mut reflector, input, last.as_deref(), now, random);
        reflector.check().unwrap();
        for (at, setting) in SETTINGS.iter().enumerate() {
            let setting = setting[usize::from(bits >> at & 1)];
            *cells.entry((setting, label(&before), effective.label())).or_default() += 1;
        }
        match checker.expected_after(&step, effective, now, due) {
            None => {
                assert_eq!(reflector, before, "{input:?} responds to no request, but changed the reflector");
                assert!(matches!(verdict, None | Some(EventVerdict::Ignore)));
            }
            Some((expected, want)) => {
                assert_eq!(verdict.unwrap_or(EventVerdict::Ignore), expected, "{input:?}");
                checker.compare(want, &reflector, now);
            }
        }
        assert_eq!((reflector.version().get(), reflector.lists()), (checker.known, checker.lists));
    }
}
