//! Simulates an informer with everything that reads it, on virtual time: a scripted source whose versions repeat and whose objects change identity under
//! one version, functions that panic on an object for as long as it exists, paged, streamed, late and failing lists, watches that are interrupted
//! between any two messages, subscriptions of every kind on consumers that are polled or not, waits, snapshots, indexes that are added and removed, and
//! a writer whose objects expire, which follows the changes.
//!
//! After every step it checks: the store has exactly the objects that follow from what was delivered; a watch that has delivered everything leaves the
//! store with the objects of the server; each consumer and each wait was woken if there is something for it, and was not woken otherwise; no alarm is
//! set that nothing waits for; counters do not decrease; a step takes a bounded number of polls.
//!
//! The fuzz target `cache_simulation` also uses this driver.

mod consumers;
mod delivered;
mod object;
mod source;
mod waits;

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    BackoffCause, Informer, InformerState, InformerStatus, Observer, Schema, Snapshot, SourceErrorKind,
    Store, TtlWriter, Version,
};
use flyball_sync::{Clock, ManualClock};
use parking_lot::Mutex;
use testkit::coverage::events::Happened;
use testkit::wakers::{Counting, poll_with};

use self::consumers::{Consumer, Logged, Selected, Shown};
use self::object::{
    BY_GROUP, BY_RANK, GROUPS, IDENTITY, INDEX, KEY, SCHEMA, TRANSFORM, Thing, UNIDENTIFIED, VERSION,
};
use self::source::{Continues, Objects, Options, Scripted, Write};
use self::waits::{Awaited, Outcome, Wait};
use crate::cache::fixture::{BUSY, EXPIRED, INTERNAL, OTHER, REFUSED, TOO_LARGE};

const KEYS: u8 = 4;
const TTL: Duration = Duration::from_secs(30);

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Write(u8, u8),
    Transaction([(u8, u8); 3]),
    Break(u8, u8),
    Deliver(u8),
    DeliverAll,
    Interrupt(u8),
    /// A transaction whose events the watch delivers only in part before it is interrupted.
    Split([(u8, u8); 3], u8),
    EndWatch,
    Bookmark,
    Repeat(u8),
    Late(u8),
    RepeatAtStart(u8),
    Compact,
    Cache,
    Restore,
    FailList(u8),
    FailWatch(u8),
    RepeatToken,
    HoldLists(bool),
    HoldWatches(bool),
    Pass(u16),
    PassLong(u8),
    Subscribe(u8),
    Take(u8, u8),
    TryTake(u8, u8),
    Abandon(u8, bool),
    Unsubscribe(u8),
    LeakSubscription(u8),
    Resync(u8),
    PassForConsumers(u8),
    WaitForVersion(u8),
    WaitForKey(u8, u8),
    WaitForList,
    WaitForEnd,
    WaitForConsumer(u8),
    PollWait(u8),
    DropWait(u8),
    LeakWait(u8),
    TakeSnapshot,
    DropSnapshot(u8),
    AddIndex(bool),
    RemoveIndex(bool),
    PassForTtl(u8),
    Evict,
    ShutDown(u8),
    Cancel(u8),
}

/// The names of the cases that may occur.
pub const NAMES: &[&str] = &[
    "plain lists",
    "paged lists",
    "streaming lists",
    "without versions",
    "without identities",
    "deletions keep versions",
    "every step of a transaction",
    "repeats nothing",
    "repeats nothing, without bookmarks",
    "continued without a repetition",
    "several events of a version",
    "another identity in a version",
    "interrupted",
    "interrupted between events of a version",
    "bookmark",
    "repeated",
    "late",
    "expired",
    "restored",
    "relist",
    "kept for an unreadable key",
    "index fault",
    "stale",
    "subscription",
    "resync",
    "wait",
    "snapshot",
    "index removed",
    "expired in the copy that expires",
    "shut down",
    "cancelled",
    "converged",
];

/// Creates a count of the cases that occur.
pub const fn tally() -> Happened {
    Happened::new(NAMES)
}

fn error(number: u8) -> SourceErrorKind {
    [EXPIRED, TOO_LARGE, BUSY, REFUSED, INTERNAL, OTHER][usize::from(number % 6)]
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Held {
    view: Snapshot<u8, Thing>,
    objects: Objects,
    grouped: bool,
}

struct World<'a> {
    tally: &'a mut Happened,
    source: Scripted,
    options: Options,
    clock: ManualClock,
    informer: Informer<u8, Thing>,
    run: Option<Run>,
    wakes: Arc<Counting>,
    waker: Waker,
    seen: usize,
    log: Arc<Mutex<Vec<Logged>>>,
    observer: Observer<u8, Thing>,
    /// The objects as they follow from the changes that the observer received, and the number of these changes.
    observed: (Objects, usize),
    consumers: Vec<Consumer>,
    /// Whether a subscription was leaked, and whether one was leaked that may have an alarm.
    leaked: (bool, bool),
    consumer_clock: ManualClock,
    waits: Vec<Wait>,
    snapshots: Vec<Held>,
    indexes: [bool; 2],
    ttl: TtlWriter<u8, Thing>,
    ttl_clock: ManualClock,
    stopping: bool,
    status: InformerStatus,
}

/// Decodes `bytes`, and performs the operations. Counts the cases that occur in `tally`.
pub fn run(bytes: &[u8], tally: &mut Happened) {
    let mut input = Unstructured::new(bytes);
    let settings: u16 = input.arbitrary().unwrap_or(0);
    let mut world = World::new(settings, tally);
    world.settle();
    world.check();
    for _ in 0..300 {
        if input.is_empty() {
            break;
        }
        let Ok(op) = input.arbitrary() else { break };
        world.step(op);
    }
    world.finish();
}

impl<'a> World<'a> {
    fn new(settings: u16, tally: &'a mut Happened) -> Self {
        let has = |bit: u16| settings >> bit & 1 != 0;
        let versioned = !(has(0) && has(1) && has(2));
        let options = Options {
            versioned,
            identified: !(has(3) && has(4)),
            deletions_keep_versions: has(5) && has(6),
            // With versions, an object has at most one state in a version, of which its deletion is one.
            verbose: has(7) && !versioned,
            // A source without versions has no version to continue after.
            continues: match (versioned && has(10), has(11)) {
                (false, _) => Continues::No,
                (true, false) => Continues::WithBookmarks,
                (true, true) => Continues::Silently,
            },
        };
        let source = Scripted::new(options);
        let schema = if options.identified { SCHEMA } else { UNIDENTIFIED };
        let mut builder =
            Informer::builder(schema, source.clone()).transform(object::transformed).index(&BY_GROUP);
        if has(8) {
            builder = builder.page_size(NonZeroU32::new(2).unwrap());
        }
        if has(9) {
            builder = builder.streaming_lists();
        }
        let clock = ManualClock::new();
        let (informer, run) = builder.seed(7).timer(clock.timer()).build().unwrap();
        tally.hit(if has(9) {
            "streaming lists"
        } else if has(8) {
            "paged lists"
        } else {
            "plain lists"
        });
        tally.hit_if(!options.versioned, "without versions");
        tally.hit_if(!options.identified, "without identities");
        tally.hit_if(options.deletions_keep_versions, "deletions keep versions");
        tally.hit_if(options.continues == Continues::WithBookmarks, "repeats nothing");
        tally.hit_if(options.continues == Continues::Silently, "repeats nothing, without bookmarks");
        tally.hit_if(options.verbose, "every step of a transaction");
        let ttl_clock = ManualClock::new();
        let unversioned = Schema::new(|thing: &Thing| thing.key, |_| Version::ZERO);
        let (ttl, _) = TtlWriter::new(Store::builder(unversioned).build().unwrap(), ttl_clock.timer());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (logged, followed) = (log.clone(), ttl.clone());
        let observer = informer.observe(move |change| {
            logged.lock().push(Logged::of(change));
            match change.new() {
                Some(new) => _ = followed.upsert(**new, Some(TTL)),
                None => _ = followed.delete(change.key(), None),
            }
        });
        let (wakes, waker) = Counting::waker();
        let status = informer.status();
        Self {
            tally,
            source,
            options,
            clock,
            informer,
            run: Some(Box::pin(run)),
            wakes,
            waker,
            // The run future is polled for the first time without having been woken.
            seen: usize::MAX,
            log,
            observer,
            observed: (Objects::new(), 0),
            consumers: Vec::new(),
            leaked: (false, false),
            consumer_clock: ManualClock::new(),
            waits: Vec::new(),
            snapshots: Vec::new(),
            indexes: [true, false],
            ttl,
            ttl_clock,
            stopping: false,
            status,
        }
    }

    /// Polls the run future as long as it is woken. Returns the number of polls.
    fn settle(&mut self) -> usize {
        let before = {
            let server = self.source.0.lock();
            server.delivered.messages + 3 * server.delivered.requests
        };
        for polls in 0..10_000 {
            let wakes = self.wakes.wakes();
            let Some(run) = self.run.as_mut().filter(|_| wakes != self.seen) else { return polls };
            self.seen = wakes;
            if let Poll::Ready(()) = object::armed(|| poll_with(run.as_mut(), &self.waker)) {
                self.run = None;
            }
            let server = self.source.0.lock();
            let most = 8 + server.delivered.messages + 3 * server.delivered.requests - before;
            assert!(polls < most, "the run future was polled {polls} times in a step");
        }
        panic!("the run future wakes itself for ever");
    }

    /// Advances the clock of the informer, and stops at each alarm on the way.
    fn pass(&mut self, time: Duration) {
        self.settle();
        let end = self.clock.now() + time;
        while let Some(alarm) =
            self.clock.next_alarm().filter(|alarm| *alarm <= end && *alarm > self.clock.now())
        {
            self.clock.set(alarm);
            self.settle();
        }
        self.clock.set(end);
        self.settle();
    }

    fn stored(&self) -> Objects {
        self.informer.snapshot().iter().map(|(key, thing)| (*key, **thing)).collect()
    }

    fn is_closed(&self) -> bool {
        self.run.is_none()
    }

    fn write(number: u8, more: u8) -> Write {
        let (key, group) = (number % KEYS, number / KEYS % GROUPS);
        match more % 8 {
            0..4 => Write::Put { key, group, faults: 0 },
            4 | 5 => Write::Delete(key),
            _ => Write::Recreate { key, group },
        }
    }

    /// Performs an operation. Returns whether it concerns the source, the clock of the informer or its shutdown, so that the run future may be woken.
    fn perform(&mut self, op: Op) -> bool {
        let source = self.source.clone();
        match op {
            Op::Write(number, more) => source.change(|server| server.transact(&[Self::write(number, more)])),
            Op::Transaction(writes) => {
                source.change(|server| {
                    server.transact(&writes.map(|(number, more)| Self::write(number, more)))
                });
            }
            Op::Break(number, fault) => {
                let faults =
                    [KEY, KEY, KEY, INDEX, INDEX, VERSION, IDENTITY, TRANSFORM][usize::from(fault % 8)];
                self.tally.hit_if(faults == INDEX, "index fault");
                let (key, group) = (number % KEYS, number / KEYS % GROUPS);
                source.change(|server| server.transact(&[Write::Put { key, group, faults }]));
            }
            Op::Deliver(count) => source.change(|server| server.credit = Some(usize::from(count % 4))),
            Op::DeliverAll => source.change(|server| server.credit = None),
            Op::Interrupt(kind) => source.change(|server| server.fails = Some(error(kind))),
            Op::Split(writes, kind) => {
                source.change(|server| {
                    server.transact(&writes.map(|(number, more)| Self::write(number, more)));
                    server.credit = Some(1);
                });
                self.settle();
                source.change(|server| (server.fails, server.credit) = (Some(error(kind)), None));
            }
            Op::EndWatch => source.change(|server| server.ends = true),
            Op::Bookmark => source.change(|server| server.bookmark = true),
            Op::Repeat(count) => source.change(|server| server.repeat = (usize::from(count % 6), false)),
            Op::Late(count) => source.change(|server| server.repeat = (usize::from(count % 6), true)),
            Op::RepeatAtStart(count) => {
                source.change(|server| server.repeat_at_start = usize::from(count % 6))
            }
            Op::Compact => source.change(source::Server::compact),
            Op::Cache => source.change(source::Server::cache),
            Op::Restore => {
                self.tally.hit("restored");
                source.change(source::Server::restore);
            }
            Op::FailList(kind) => source.change(|server| server.failing_lists.push_back(error(kind))),
            Op::FailWatch(kind) => source.change(|server| server.failing_watches.push_back(error(kind))),
            Op::RepeatToken => source.change(|server| server.repeats_token = true),
            Op::HoldLists(held) => source.change(|server| server.lists_held = held),
            Op::HoldWatches(held) => source.change(|server| server.watches_held = held),
            Op::Pass(millis) => self.pass(Duration::from_millis(millis.into())),
            Op::PassLong(seconds) => self.pass(Duration::from_secs(seconds.into())),
            Op::ShutDown(0..16) => {
                self.tally.hit("shut down");
                self.informer.shut_down();
                self.stopping = true;
            }
            Op::Cancel(0..16) => {
                self.tally.hit("cancelled");
                self.run = None;
                self.stopping = true;
            }
            Op::ShutDown(_) | Op::Cancel(_) => return false,
            op => {
                self.read(op);
                return false;
            }
        }
        true
    }

    /// Performs an operation of a reader.
    fn read(&mut self, op: Op) {
        let objects = self.stored();
        let log = self.log.lock();
        let lists = self.source.0.lock().delivered.lists;
        let shown = Shown { objects: &objects, log: &log, lists, clock: &self.consumer_clock };
        let (consumers, waits) = (&mut self.consumers, &mut self.waits);
        let store = self.informer.store();
        match op {
            Op::Subscribe(bits) if consumers.len() < 5 => {
                let (selected, closed) = (Selected::new(bits), self.run.is_none());
                consumers.extend(Consumer::new(&self.informer, selected, &self.consumer_clock, closed));
                self.tally.hit("subscription");
            }
            Op::Take(number, most) => {
                _ = pick(consumers, number).map(|it| it.take(most.into(), true, &shown))
            }
            Op::TryTake(number, most) => {
                _ = pick(consumers, number).map(|it| it.take(most.into(), false, &shown))
            }
            Op::Abandon(number, leak) => _ = pick(consumers, number).map(|it| it.abandon(leak, &shown)),
            Op::Unsubscribe(number) if !consumers.is_empty() => {
                drop(consumers.swap_remove(usize::from(number) % consumers.len()));
            }
            Op::LeakSubscription(number) if !consumers.is_empty() && number < 64 => {
                let leaked = consumers.swap_remove(usize::from(number) % consumers.len());
                self.leaked = (true, self.leaked.1 || leaked.may_have_alarm());
                std::mem::forget(leaked);
            }
            Op::Resync(number) => {
                self.tally.hit_if(!consumers.is_empty(), "resync");
                _ = pick(consumers, number).map(Consumer::resync);
            }
            Op::PassForConsumers(seconds) => {
                self.consumer_clock.advance(Duration::from_secs((seconds % 16).into()))
            }
            Op::WaitForVersion(ahead) if waits.len() < 6 => {
                let version = store.version().get() + u64::from(ahead % 6);
                let wait = store.wait_for_version(Version::new(version));
                waits.push(Wait::new(Awaited::Version(version), async { outcome(wait.await.is_ok()) }));
            }
            Op::WaitForKey(key, ahead) if waits.len() < 6 => {
                let version = store.version().get() + u64::from(ahead % 6);
                let wait = store.wait_for_key(key % KEYS, Version::new(version));
                waits.push(Wait::new(Awaited::Version(version), async { outcome(wait.await.is_ok()) }));
            }
            Op::WaitForList if waits.len() < 6 => {
                let informer = self.informer.clone();
                let wait = async move { outcome(informer.synced().await.is_ok()) };
                waits.push(Wait::new(Awaited::FirstList, wait));
            }
            Op::WaitForEnd if waits.len() < 6 => {
                let informer = self.informer.clone();
                let wait = async move {
                    informer.stopped().await;
                    Outcome::Reached
                };
                waits.push(Wait::new(Awaited::End, wait));
            }
            Op::WaitForConsumer(number) if waits.len() < 6 => {
                if let Some(wait) = pick(consumers, number).map(|it| it.initial_processed()) {
                    waits.push(Wait::new(Awaited::Consumer, async { outcome(wait.await.is_ok()) }));
                }
            }
            Op::PollWait(number) if !waits.is_empty() => {
                self.tally.hit("wait");
                let at = usize::from(number) % waits.len();
                if waits[at].poll(None) {
                    drop(waits.swap_remove(at));
                }
            }
            Op::DropWait(number) if !waits.is_empty() => {
                drop(waits.swap_remove(usize::from(number) % waits.len()))
            }
            Op::LeakWait(number) if !waits.is_empty() => {
                waits.swap_remove(usize::from(number) % waits.len()).leak()
            }
            Op::TakeSnapshot if self.snapshots.len() < 4 => {
                let (view, grouped) = (self.informer.snapshot(), self.indexes[0]);
                self.snapshots.push(Held { view, objects: objects.clone(), grouped });
                self.tally.hit("snapshot");
            }
            Op::DropSnapshot(number) if !self.snapshots.is_empty() => {
                let at = usize::from(number) % self.snapshots.len();
                self.snapshots.swap_remove(at).check();
            }
            Op::AddIndex(first) => {
                let added = if first {
                    self.informer.add_index(&BY_GROUP)
                } else {
                    self.informer.add_index(&BY_RANK)
                };
                let present = &mut self.indexes[usize::from(!first)];
                assert_eq!(added.is_err(), *present);
                *present = true;
            }
            Op::RemoveIndex(first) => {
                let removed = if first {
                    self.informer.writer().remove_index(&BY_GROUP)
                } else {
                    self.informer.writer().remove_index(&BY_RANK)
                };
                let present = &mut self.indexes[usize::from(!first)];
                assert_eq!(removed.is_ok(), *present);
                *present = false;
                if first {
                    self.tally.hit("index removed");
                    consumers
                        .iter_mut()
                        .filter(|it| it.selected.group.is_some())
                        .for_each(|it| it.closing = true);
                }
            }
            Op::PassForTtl(seconds) => self.ttl_clock.advance(Duration::from_secs((seconds % 32).into())),
            Op::Evict => {
                self.tally.hit_if(self.ttl.sweep() > 0, "expired in the copy that expires");
                assert!(self.ttl.next_deadline().is_none_or(|next| next > self.ttl_clock.now()));
            }
            _ => {}
        }
    }

    fn step(&mut self, op: Op) {
        let concerns_the_run = self.perform(op);
        let polls = self.settle();
        assert!(polls == 0 || concerns_the_run, "the run future was woken without a cause by {op:?}");
        self.tally(op);
        self.check();
    }

    fn tally(&mut self, op: Op) {
        let name = match op {
            Op::Interrupt(_) => "interrupted",
            Op::Bookmark => "bookmark",
            Op::Repeat(_) | Op::RepeatAtStart(_) => "repeated",
            Op::Late(_) => "late",
            Op::Compact => "expired",
            _ => return,
        };
        self.tally.hit(name);
    }

    /// Checks everything after a step.
    fn check(&mut self) {
        let stored = self.stored();
        self.informer.store().check().unwrap();
        self.ttl.check().unwrap();
        self.check_objects(&stored);
        // The observer's copy.
        let log = self.log.lock();
        for Logged { old, new, kind } in &log[self.observed.1..] {
            let before = match (old, new) {
                (_, Some(new)) => self.observed.0.insert(new.key, *new),
                (Some(old), None) => self.observed.0.remove(&old.key),
                (None, None) => None,
            };
            // Without identities, the last state that a deletion delivers may be that of another object.
            if self.options.identified {
                assert_eq!(before.map(|it| it.uid), old.map(|it| it.uid), "{kind:?}");
            }
        }
        self.observed.1 = log.len();
        assert_eq!(self.observed.0, stored, "the observer has missed a change");
        for key in 0..KEYS {
            let followed = self.ttl.get(&key);
            assert!(
                followed.is_none_or(|it| stored.get(&key) == Some(&*it)),
                "the copy that expires has another object"
            );
        }
        assert_eq!(self.observer.panic_count(), 0);
        self.check_indexes(&stored);
        let closed = self.run.is_none();
        for consumer in &mut self.consumers {
            consumer.closing |= closed;
        }
        let lists = self.source.0.lock().delivered.lists;
        let shown = Shown { objects: &stored, log: &log, lists, clock: &self.consumer_clock };
        self.consumers.iter().for_each(|consumer| consumer.check(&shown));
        let may = self.leaked.1 || self.consumers.iter().any(Consumer::may_have_alarm);
        assert!(may || self.consumer_clock.next_alarm().is_none(), "an alarm is set that nothing waits for");
        let version = self.informer.store().version().get();
        for wait in &self.waits {
            let over = match wait.awaited {
                Awaited::Version(wanted) if version >= wanted || closed => Some(true),
                // The wait may have been ended by a list that has lowered the version.
                Awaited::Version(_) => None,
                Awaited::FirstList => Some(self.informer.is_synced() || closed),
                Awaited::End => Some(closed),
                Awaited::Consumer => None,
            };
            wait.check(over);
        }
        match &self.run {
            None => assert_eq!(self.clock.next_alarm(), None, "an alarm is set that nothing waits for"),
            Some(_) => {
                assert!(self.clock.next_alarm().is_some(), "every state of the informer has a deadline")
            }
        }
        if let Some(held) = self.snapshots.first() {
            held.check();
        }
        drop(log);
        self.check_status();
    }

    fn check_objects(&mut self, stored: &Objects) {
        let server = self.source.0.lock();
        if self.stopping || server.delivered.lists == 0 {
            return;
        }
        let delivered = &server.delivered;
        let known = |key: &u8| !delivered.unknown.contains(key);
        let of = |objects: &Objects| -> Objects {
            objects.iter().filter(|(key, _)| known(key)).map(|(key, thing)| (*key, *thing)).collect()
        };
        assert_eq!(of(stored), of(&delivered.objects), "the store differs from what was delivered");
        let version = self.informer.store().version().get();
        let (least, most) = delivered.version;
        assert!((least..=most).contains(&version), "the version is {version}, and not in {least}..={most}");
        if server.at_head && self.options.versioned {
            self.tally.hit("converged");
            let truth = |objects: &Objects| -> Objects {
                let mut objects = of(objects);
                objects.retain(|key, _| !delivered.tainted.contains(key));
                objects
            };
            assert_eq!(
                truth(stored),
                truth(&server.objects),
                "everything is delivered, and the store differs"
            );
        }
    }

    fn check_indexes(&self, stored: &Objects) {
        let store = self.informer.store();
        for value in 0..GROUPS {
            let is_it = |thing: &&Thing| !thing.has(INDEX) && thing.group == value;
            let expected = stored.values().filter(is_it).count();
            let found = store.by_index(&BY_GROUP, &value).map(|found| found.len());
            assert_eq!(found.ok(), self.indexes[0].then_some(expected));
        }
        let failed = stored.values().filter(|thing| thing.has(INDEX)).count();
        let indexes = self.indexes.iter().filter(|present| **present).count();
        assert_eq!(store.index_errors().len(), failed * indexes);
    }

    fn check_status(&mut self) {
        let status = self.informer.status();
        let before = std::mem::replace(&mut self.status, status);
        let server = self.source.0.lock();
        if !self.stopping && server.delivered.lists > 0 && server.delivered.unknown.is_empty() {
            let kept = server.delivered.kept.len();
            assert_eq!(
                self.status.withheld_deletions, kept as u64,
                "the status has another number of kept objects"
            );
            assert!(kept == 0 || self.status.last_error.is_some(), "deletions are withheld in silence");
        }
        drop(server);
        let counters = |status: &InformerStatus| {
            [status.stale_events, status.panics, status.relists, status.watch_restarts]
        };
        let falls = counters(&before).iter().zip(counters(&self.status)).any(|(before, now)| *before > now);
        assert!(!falls, "a counter fell from {before:?} to {:?}", self.status);
        assert_eq!(self.status.state.is_final(), self.is_closed());
        std::mem::take(&mut self.source.0.lock().delivered.cases)
            .into_iter()
            .for_each(|case| self.tally.hit(case));
        self.tally.hit_if(self.status.stale_events > 0, "stale");
        self.tally.hit_if(self.status.relists > 0, "relist");
    }

    /// Ends all faults, and checks that the informer and every consumer reach the state of the server.
    fn finish(mut self) {
        self.source.change(|server| {
            (server.credit, server.lists_held, server.watches_held) = (None, false, false);
            (server.repeats_token, server.repeat, server.repeat_at_start) = (false, (0, false), 0);
            server.failing_lists.clear();
            server.failing_watches.clear();
        });
        self.pass(Duration::from_secs(600));
        self.check();
        // At its maximum age, a watch without a version ends, and so does one whose next version would be a lost one, after a restore. The informer
        // waits before it lists again.
        let lists_again = [BackoffCause::Unversioned, BackoffCause::Failed(EXPIRED)];
        if matches!(self.status.state, InformerState::Waiting { cause, .. } if lists_again.contains(&cause)) {
            self.pass(Duration::from_secs(60));
            self.check();
        }
        let (stored, closed) = (self.stored(), self.is_closed());
        if !self.stopping {
            assert_eq!(self.status.state, InformerState::Watching);
            assert!(self.source.0.lock().at_head, "the watch does not deliver everything");
        }
        let log = self.log.lock().clone();
        let lists = self.source.0.lock().delivered.lists;
        let shown = Shown { objects: &stored, log: &log, lists, clock: &self.consumer_clock };
        self.consumers.drain(..).for_each(|consumer| consumer.finish(&shown));
        if !self.leaked.1 {
            assert_eq!(self.consumer_clock.next_alarm(), None, "an alarm outlives its subscription");
        }
        self.snapshots.drain(..).for_each(|held| held.check());
        if !closed {
            self.informer.shut_down();
            self.stopping = true;
            self.settle();
        }
        assert!(self.is_closed(), "the informer does not end");
        assert_eq!(self.clock.next_alarm(), None, "an alarm outlives the informer");
        for mut wait in self.waits.drain(..) {
            let consumer = wait.awaited == Awaited::Consumer;
            assert!(wait.poll(None) || consumer, "a wait outlives the informer");
        }
        let held = self.informer.store().retained_snapshots().states;
        assert!(held == 0 || self.leaked.0, "{held} states are held that nothing reads");
    }
}

impl Held {
    fn check(&self) {
        self.view.check().unwrap();
        let objects: Objects = self.view.iter().map(|(key, thing)| (*key, **thing)).collect();
        assert_eq!(objects, self.objects, "a snapshot has changed");
        assert_eq!(self.view.by_index(&BY_GROUP, &0).is_ok(), self.grouped);
    }
}

fn outcome(reached: bool) -> Outcome {
    if reached { Outcome::Reached } else { Outcome::Failed }
}

fn pick(consumers: &mut [Consumer], number: u8) -> Option<&mut Consumer> {
    let count = consumers.len();
    consumers.get_mut(usize::from(number).checked_rem(count)?)
}
