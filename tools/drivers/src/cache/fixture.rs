//! An informer on virtual time: the test advances the clock, and this fixture polls the informer's run future whenever it is woken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_informer_cache::{
    Informer, InformerBuilder, Schema, Source, SourceError, SourceErrorKind, Version, WatchEvent,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::wakers::{Counting, poll_with};

/// An object of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The key.
    pub key: u8,
    /// The identity. If an object is deleted and created again under the same key, the new object has a different identity.
    pub uid: u64,
    /// The version of the write that produced this state of the object.
    pub version: u64,
}

/// The schema of these objects.
pub const SCHEMA: Schema<u8, Object> =
    Schema::new(|object: &Object| object.key, |object| Version::new(object.version))
        .with_identity(|a, b| a.uid == b.uid);

/// Creates an object with this key and version, and the identity of the first object under the key.
pub fn object(key: u8, version: u64) -> Object {
    Object { key, uid: 0, version }
}

/// An error without a cause.
pub fn error(kind: SourceErrorKind) -> SourceError {
    kind.into()
}

/// The requested version is too old.
pub const EXPIRED: SourceErrorKind = SourceErrorKind::Expired;
/// The server has not reached the requested version yet.
pub const TOO_LARGE: SourceErrorKind = SourceErrorKind::VersionTooLarge;
/// The server is overloaded.
pub const BUSY: SourceErrorKind = SourceErrorKind::TooManyRequests { retry_after: None };
/// The connection was refused.
pub const REFUSED: SourceErrorKind = SourceErrorKind::ConnectionRefused;
/// The server failed internally.
pub const INTERNAL: SourceErrorKind = SourceErrorKind::Internal;
/// Anything else.
pub const OTHER: SourceErrorKind = SourceErrorKind::Other;

/// A bookmark.
pub fn bookmark(version: u64) -> WatchEvent<Object> {
    WatchEvent::Bookmark(Version::new(version))
}

/// A running informer.
#[expect(missing_debug_implementations, reason = "a future has nothing to show")]
pub struct World {
    /// The clock of the informer.
    pub clock: ManualClock,
    /// The handle.
    pub informer: Informer<u8, Object>,
    run: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    wakes: Arc<Counting>,
    waker: Waker,
    seen: usize,
    /// The number of polls of the run future so far.
    pub polls: usize,
}

impl World {
    /// Creates an informer whose run future has not been polled yet.
    pub fn new<S: Source<Object = Object>>(builder: InformerBuilder<u8, Object, S>) -> Self {
        let clock = ManualClock::new();
        let (informer, run) = builder.seed(7).timer(clock.timer()).build().unwrap();
        let (wakes, waker) = Counting::waker();
        let mut world = Self { clock, informer, run: Some(Box::pin(run)), wakes, waker, seen: 0, polls: 0 };
        // The run future is polled for the first time without having been woken.
        world.seen = usize::MAX;
        world
    }

    /// The time of the clock.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns whether the run future has completed or was dropped.
    pub fn is_over(&self) -> bool {
        self.run.is_none()
    }

    /// Polls the run future once if it was woken. Returns whether it was polled.
    pub fn poll(&mut self) -> bool {
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

    /// Polls the run future until it is no longer woken.
    pub fn settle(&mut self) -> &mut Self {
        for _ in 0..100_000 {
            if !self.poll() {
                return self;
            }
        }
        panic!("the run future wakes itself for ever");
    }

    /// Advances the clock by `time`. Stops at each alarm on the way, and polls the run future there.
    pub fn advance(&mut self, time: Duration) -> &mut Self {
        self.settle();
        let end = self.now() + time;
        while let Some(alarm) = self.clock.next_alarm().filter(|alarm| *alarm <= end && *alarm > self.now()) {
            self.clock.set(alarm);
            self.settle();
        }
        self.clock.set(end);
        self.settle()
    }

    /// Advances the clock to the next alarm. Returns the time that has passed.
    pub fn advance_to_alarm(&mut self) -> Duration {
        self.settle();
        let before = self.now();
        let alarm = self.clock.next_alarm().expect("no alarm is set");
        self.clock.set(alarm);
        self.settle();
        alarm.since(before)
    }

    /// Drops the run future.
    pub fn cancel(&mut self) {
        self.run = None;
    }

    /// Takes the run future out of the fixture, so that the test can poll it itself.
    pub fn take_run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.run.take().unwrap()
    }

    /// Returns the objects of the store, in the order of their keys.
    pub fn stored(&self) -> Vec<Object> {
        let mut objects: Vec<Object> = self.informer.snapshot().iter().map(|(_, object)| **object).collect();
        objects.sort_by_key(|object| object.key);
        objects
    }
}
