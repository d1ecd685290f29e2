//! The consumers of the simulation: subscriptions with every option, each with a copy of the store that is computed only from what it receives.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flyball_informer_cache::{
    Change, ChangeKind, Informer, InitialProcessed, Subscription, SubscriptionEvent,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::wakers::Counting;

use super::object::{BY_GROUP, GROUPS, INDEX, Thing};
use super::source::Objects;

/// A change that the store has published, as an observer received it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) kind: ChangeKind,
    pub(super) old: Option<Thing>,
    pub(super) new: Option<Thing>,
}

impl Logged {
    pub(super) fn of(change: &Change<u8, Thing>) -> Self {
        Self { kind: change.kind(), old: change.old().map(|old| **old), new: change.new().map(|new| **new) }
    }
}

/// What a subscription selects, and what happens when it falls behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected {
    key: Option<u8>,
    pub(super) group: Option<u8>,
    filtered: bool,
    bounded: bool,
    pub(super) period: Option<Duration>,
}

impl Selected {
    pub(super) fn new(bits: u8) -> Self {
        let value = bits >> 6;
        Self {
            key: (bits & 3 == 1).then_some(value),
            group: (bits & 3 == 2).then_some(value % GROUPS),
            filtered: bits & 4 != 0,
            bounded: bits & 16 != 0,
            period: (bits & 32 != 0).then_some(Duration::from_secs(10)),
        }
    }

    /// Returns whether a change of the object concerns the subscription, although its filter may reject the object.
    fn selects(&self, thing: &Thing) -> bool {
        self.key.is_none_or(|key| key == thing.key)
            && self.group.is_none_or(|group| group == thing.group && !thing.has(INDEX))
    }

    fn shows(&self, thing: &Thing) -> bool {
        self.selects(thing) && !(self.filtered && thing.uid % 3 == 0)
    }
}

enum Changes {
    All(Subscription<u8, Thing>),
    Bounded(Subscription<u8, Thing, SubscriptionEvent<u8, Thing>>),
}

/// Evaluates `$then`, with `$name` bound to the subscription in `$changes`, of whichever kind it is.
macro_rules! either {
    ($changes:expr, $name:ident => $then:expr) => {
        match $changes {
            Changes::All($name) => $then,
            Changes::Bounded($name) => $then,
        }
    };
}

/// An item that a consumer received.
enum Item {
    Change(Change<u8, Thing>),
    Restarted,
    Ended,
}

impl From<Option<Change<u8, Thing>>> for Item {
    fn from(change: Option<Change<u8, Thing>>) -> Self {
        change.map_or(Self::Ended, Self::Change)
    }
}

impl From<Option<SubscriptionEvent<u8, Thing>>> for Item {
    fn from(event: Option<SubscriptionEvent<u8, Thing>>) -> Self {
        match event {
            Some(SubscriptionEvent::Change(change)) => Self::Change(change),
            Some(SubscriptionEvent::Restarted) => Self::Restarted,
            None => Self::Ended,
        }
    }
}

/// The state of a consumer since its last poll, which returned `Pending`.
struct Waiting {
    wakes: Arc<Counting>,
    waker: Waker,
    /// The number of changes that the store had published.
    published: usize,
    /// The keys of the stored objects that were selected, although the filter may have rejected them.
    selected: BTreeSet<u8>,
    lists: u64,
    at: Nanos,
}

pub(super) struct Consumer {
    changes: Changes,
    pub(super) selected: Selected,
    known: BTreeMap<u8, Thing>,
    waiting: Option<Waiting>,
    /// Whether the subscription was polled with a waker since it was created.
    pub(super) polled: bool,
    pub(super) ended: bool,
    /// Whether its index was removed, or the store was closed.
    pub(super) closing: bool,
}

/// What the store shows to consumers after a step.
pub(super) struct Shown<'a> {
    pub(super) objects: &'a Objects,
    pub(super) log: &'a [Logged],
    /// The number of lists that the source has delivered.
    pub(super) lists: u64,
    pub(super) clock: &'a ManualClock,
}

impl Consumer {
    pub(super) fn new(
        informer: &Informer<u8, Thing>,
        selected: Selected,
        clock: &ManualClock,
        closed: bool,
    ) -> Option<Self> {
        let mut builder = informer.subscription();
        if let Some(key) = selected.key {
            builder = builder.for_key(key);
        }
        if let Some(group) = selected.group {
            builder = builder.by_index(&BY_GROUP, group).ok()?;
        }
        if selected.filtered {
            builder = builder.filter(|thing| thing.uid % 3 != 0);
        }
        if let Some(period) = selected.period {
            builder = builder.resync_every(clock.timer(), period);
        }
        let changes = match selected.bounded {
            true => Changes::Bounded(builder.max_pending(2.try_into().unwrap()).subscribe()),
            false => Changes::All(builder.subscribe()),
        };
        Some(Self {
            changes,
            selected,
            known: BTreeMap::new(),
            waiting: None,
            polled: false,
            ended: false,
            closing: closed,
        })
    }

    /// Requests the next item without waiting.
    fn poll_once(&mut self, waker: Option<&Waker>) -> Poll<Item> {
        match waker {
            Some(waker) => {
                let mut cx = Context::from_waker(waker);
                either!(&mut self.changes, changes => changes.poll_next(&mut cx).map(Item::from))
            }
            None => either!(&mut self.changes, changes => match changes.try_next() {
                None => Poll::Pending,
                item => Poll::Ready(item.into()),
            }),
        }
    }

    /// Takes up to `most` items, with a waker or without one. Returns the number of items.
    pub(super) fn take(&mut self, most: usize, with_waker: bool, shown: &Shown<'_>) -> usize {
        let most = most.max(1);
        let (wakes, waker) = match self.waiting.take() {
            // A waker that was woken is not used again, so that its count is that of one wait.
            Some(waiting) if waiting.wakes.wakes() == 0 => (waiting.wakes, waiting.waker),
            _ => Counting::waker(),
        };
        for taken in 0..most {
            if self.ended {
                return taken;
            }
            match self.poll_once(with_waker.then_some(&waker)) {
                Poll::Ready(item) => self.receive(item),
                Poll::Pending => {
                    if with_waker {
                        self.wait(wakes, waker, shown);
                    }
                    assert!(
                        self.is_current(shown),
                        "nothing is delivered to {:?}, which misses changes",
                        self.selected
                    );
                    return taken;
                }
            }
        }
        most
    }

    pub(super) fn resync(&mut self) {
        either!(&mut self.changes, changes => changes.resync());
    }

    /// Creates the future of the next item, polls it, and drops or leaks it.
    pub(super) fn abandon(&mut self, leak: bool, shown: &Shown<'_>) {
        if self.ended {
            return;
        }
        let (wakes, waker) = Counting::waker();
        let mut cx = Context::from_waker(&waker);
        let item = either!(&mut self.changes, changes => {
            let mut next = changes.next();
            let item = Pin::new(&mut next).poll(&mut cx);
            if leak {
                // Not `mem::forget`, which clippy refuses as long as the future has no `Drop`.
                let _leaked = std::mem::ManuallyDrop::new(next);
            }
            item.map(Item::from)
        });
        self.waiting = None;
        match item {
            Poll::Ready(item) => self.receive(item),
            Poll::Pending => self.wait(wakes, waker, shown),
        }
    }

    fn receive(&mut self, item: Item) {
        match item {
            Item::Change(change) => self.apply(&change),
            Item::Restarted => self.known.clear(),
            Item::Ended => {
                assert!(self.closing, "a subscription ended without a cause");
                self.ended = true;
            }
        }
    }

    fn wait(&mut self, wakes: Arc<Counting>, waker: Waker, shown: &Shown<'_>) {
        let (published, lists, at) = (shown.log.len(), shown.lists, shown.clock.now());
        let selected = shown.objects.values().filter(|thing| self.selected.selects(thing));
        let selected = selected.map(|thing| thing.key).collect();
        self.waiting = Some(Waiting { wakes, waker, published, selected, lists, at });
        self.polled = true;
    }

    pub(super) fn initial_processed(&self) -> InitialProcessed {
        either!(&self.changes, changes => changes.initial_processed())
    }

    /// Returns whether the consumer has the state of the store, as far as it selects it.
    fn is_current(&self, shown: &Shown<'_>) -> bool {
        let of = shown.objects.values().filter(|thing| self.selected.shows(thing));
        self.closing || self.known.values().eq(of)
    }

    fn apply(&mut self, change: &Change<u8, Thing>) {
        let (key, Logged { kind, old, new }) = (*change.key(), Logged::of(change));
        let before = match new {
            Some(new) => self.known.insert(key, new),
            None => self.known.remove(&key),
        };
        match kind {
            ChangeKind::Initial | ChangeKind::Added => assert_eq!(before, None, "{key} was added twice"),
            ChangeKind::Updated => {
                assert_eq!(before, old, "{key} was updated from a state that was not delivered")
            }
            ChangeKind::Replaced => {
                assert_eq!(
                    before.map(|it| it.uid),
                    old.map(|it| it.uid),
                    "{key} was replaced as another object"
                );
                assert_ne!(old.map(|it| it.uid), new.map(|it| it.uid), "{key} was replaced by itself");
            }
            ChangeKind::Deleted | ChangeKind::Missed => {
                assert!(before.is_some(), "{key} was deleted and is not known");
            }
        }
    }

    /// Checks, after a step, that the consumer was woken if there is something to deliver, and only then.
    pub(super) fn check(&self, shown: &Shown<'_>) {
        either!(&self.changes, changes => changes.check()).unwrap();
        let Some(Waiting { wakes, published, selected, lists, at, .. }) = &self.waiting else { return };
        let wakes = wakes.wakes();
        // The last state of a deleted object, which the deletion has delivered, need not be the stored state that was selected.
        let concerns = |change: &Logged| {
            let mut states = [change.old, change.new].into_iter().flatten();
            let was_selected = |key| self.known.contains_key(&key) || selected.contains(&key);
            states.any(|it| self.selected.selects(&it) || was_selected(it.key))
        };
        let due = self.selected.period.is_some_and(|_| shown.clock.now() > *at);
        let cause =
            self.closing || due || shown.lists > *lists || shown.log[*published..].iter().any(concerns);
        assert!(wakes == 0 || cause, "{:?} was woken without a cause", self.selected);
        assert!(wakes <= 1 + usize::from(due), "{:?} was woken {wakes} times for one poll", self.selected);
        assert!(wakes > 0 || !self.closing, "{:?} was not woken at its end", self.selected);
        assert!(wakes > 0 || self.is_current(shown), "{:?} misses changes and was not woken", self.selected);
        if let Some(period) = self.selected.period {
            assert!(
                wakes > 0 || shown.clock.now().since(*at) < period && shown.clock.next_alarm().is_some(),
                "{:?} was not woken for its resync",
                self.selected
            );
        }
    }

    /// Returns whether the consumer may have an alarm.
    pub(super) fn may_have_alarm(&self) -> bool {
        self.selected.period.is_some() && self.polled && !self.ended
    }

    /// Takes everything, and checks that the consumer then has the state of the store.
    pub(super) fn finish(mut self, shown: &Shown<'_>) {
        let most = 1_000;
        assert!(self.take(most, true, shown) < most, "a consumer receives changes without end");
        assert!(self.ended || self.is_current(shown));
    }
}
