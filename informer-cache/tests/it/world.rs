//! An informer on virtual time: its run future, polled when it was woken, on a clock moved by hand.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_informer_cache::{
    Event, Informer, InformerBuilder, Schema, Source, SourceError, SourceErrorKind, Version,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::wakers::{Counting, poll_with};

/// An object of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: u8,
    /// Another object under the same key has another one.
    pub(crate) uid: u64,
    pub(crate) version: u64,
}

pub(crate) const SCHEMA: Schema<u8, Object> =
    Schema::new(|object: &Object| object.key, |object| Version::new(object.version))
        .identity(|a, b| a.uid == b.uid);

/// The first object under a key, at a version.
pub(crate) fn object(key: u8, version: u64) -> Object {
    Object { key, uid: 0, version }
}

/// An error without a cause.
pub(crate) fn error(kind: SourceErrorKind) -> SourceError {
    kind.into()
}

pub(crate) const EXPIRED: SourceErrorKind = SourceErrorKind::Expired;
pub(crate) const TOO_LARGE: SourceErrorKind = SourceErrorKind::TooLargeVersion;
pub(crate) const BUSY: SourceErrorKind = SourceErrorKind::TooManyRequests { retry_after: None };
pub(crate) const REFUSED: SourceErrorKind = SourceErrorKind::Refused;
pub(crate) const INTERNAL: SourceErrorKind = SourceErrorKind::Internal;
pub(crate) const OTHER: SourceErrorKind = SourceErrorKind::Other;

/// A bookmark.
pub(crate) fn bookmark(version: u64) -> Event<Object> {
    Event::Bookmark(Version::new(version))
}

/// A running informer.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) informer: Informer<u8, Object>,
    run: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wakes: Arc<Counting>,
    waker: Waker,
    seen: usize,
    /// Polls of the run future so far.
    pub(crate) polls: usize,
}

impl World {
    pub(crate) fn new<S: Source<Object = Object>>(builder: InformerBuilder<u8, Object, S>) -> Self {
        let clock = ManualClock::new();
        let (informer, run) = builder.seed(7).timer(clock.timer()).build().unwrap();
        let (wakes, waker) = Counting::waker();
        let mut world = Self { clock, informer, run: Some(Box::pin(run)), wakes, waker, seen: 0, polls: 0 };
        // The first poll needs no wake-up.
        world.seen = usize::MAX;
        world
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Whether the run future is over, or dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.run.is_none()
    }

    /// Polls once if woken; whether there was something to do.
    pub(crate) fn turn(&mut self) -> bool {
        let wakes = self.wakes.wakes();
        let Some(run) = &mut self.run else { return false };
        if wakes == self.seen {
            return false;
        }
        self.seen = wakes;
        self.polls += 1;
        if let Poll::Ready(()) = poll_with(run.as_mut(), &self.waker) {
            self.run = None;
        }
        true
    }

    /// Polls as long as somebody wakes it.
    pub(crate) fn settle(&mut self) -> &mut Self {
        for _ in 0..100_000 {
            if !self.turn() {
                return self;
            }
        }
        panic!("the run future wakes itself for ever");
    }

    /// Lets time pass, stopping at each alarm.
    pub(crate) fn pass(&mut self, time: Duration) -> &mut Self {
        self.settle();
        let end = self.now() + time;
        while let Some(alarm) = self.clock.next_alarm().filter(|alarm| *alarm <= end && *alarm > self.now()) {
            self.clock.set(alarm);
            self.settle();
        }
        self.clock.set(end);
        self.settle()
    }

    /// Lets time pass up to the next alarm; how long that was.
    pub(crate) fn pass_alarm(&mut self) -> Duration {
        self.settle();
        let before = self.now();
        let alarm = self.clock.next_alarm().expect("nobody waits for time to pass");
        self.clock.set(alarm);
        self.settle();
        alarm.since(before)
    }

    /// Drops the run future.
    pub(crate) fn cancel(&mut self) {
        self.run = None;
    }

    /// Takes the run future out, to poll it by other means.
    pub(crate) fn take_run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.run.take().unwrap()
    }

    /// The store's objects by key.
    pub(crate) fn stored(&self) -> Vec<Object> {
        let mut objects: Vec<Object> = self.informer.snapshot().iter().map(|(_, object)| **object).collect();
        objects.sort_by_key(|object| object.key);
        objects
    }
}
