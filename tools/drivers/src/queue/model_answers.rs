//! Converts the results of a queue to the types of its model.

use std::fmt::{Debug, Display};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flyball_workqueue::{
    AddError, AddErrorKind, Added, AddedMany, KeyInfo, KeyState, Leftovers, QueueStats, TryGetError,
};
use testkit::queue_answers::{
    self, AddManyOutcome, GetError, OldestAges, OracleKeyState, OracleLeftovers, Outcome, QueueSnapshot,
    Tally, Time,
};
use testkit::wakers::poll_at_once;

/// Polls a future once, returns its result, and drops the future.
pub(crate) fn poll<F: Future>(future: F) -> Option<F::Output> {
    match poll_at_once(pin!(future)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Converts the result of one poll of an async get to the result of a `try_get`.
pub(crate) fn taken<L>(polled: Option<Vec<L>>) -> Result<Vec<L>, TryGetError> {
    match polled {
        None => Err(TryGetError::Empty),
        Some(leases) if leases.is_empty() => Err(TryGetError::Closed),
        Some(leases) => Ok(leases),
    }
}

pub(crate) fn nothing(why: TryGetError) -> GetError {
    match why {
        TryGetError::Empty => GetError::Empty,
        TryGetError::Closed => GetError::Closed,
    }
}

pub(crate) fn added<K>(answer: Result<Added, AddError<K>>) -> Result<Outcome, queue_answers::Refused> {
    match answer {
        Ok(Added::New) => Ok(Outcome::New),
        Ok(Added::Merged) => Ok(Outcome::Merged),
        Ok(Added::Promoted) => Ok(Outcome::Promoted),
        Ok(Added::Dirty) => Ok(Outcome::Marked),
        Err(refused) => Err(reason(refused.kind())),
    }
}

pub(crate) fn added_many<K>(many: AddedMany<K>) -> AddManyOutcome<K> {
    let refused = many.refused.into_iter().map(|refused| {
        let why = reason(refused.kind());
        (refused.into_key(), why)
    });
    AddManyOutcome {
        new: many.new,
        merged: many.merged,
        promoted: many.promoted,
        marked: many.dirty,
        refused: refused.collect(),
    }
}

pub(crate) fn reason(reason: AddErrorKind) -> queue_answers::Refused {
    match reason {
        AddErrorKind::ShutDown => queue_answers::Refused::ShutDown,
        AddErrorKind::Full => queue_answers::Refused::Full,
        AddErrorKind::GivenUp => queue_answers::Refused::Exhausted,
        other => panic!("a reason that the state table does not have: {other:?}"),
    }
}

/// The state of a key.
pub fn seen(state: KeyState) -> OracleKeyState {
    match state {
        KeyState::Absent => OracleKeyState::Absent,
        KeyState::Waiting(until) => OracleKeyState::Waiting(until.get()),
        KeyState::Ready => OracleKeyState::Ready,
        KeyState::Leased => OracleKeyState::Leased,
        KeyState::LeasedDirty => OracleKeyState::LeasedDirty,
        KeyState::LeasedWaiting(until) => OracleKeyState::LeasedWaiting(until.get()),
        other => panic!("a state that the state table does not have: {other:?}"),
    }
}

/// Converts the number of keys in each state to the type of the model.
pub fn tally(counts: QueueStats) -> Tally {
    Tally { ready: counts.ready, waiting: counts.waiting, leased: counts.leased, dirty: counts.dirty }
}

pub(crate) fn nanos(duration: Duration) -> Time {
    queue_answers::later(0, duration)
}

/// Returns the ages of the oldest Ready key and of the oldest lease; `None` if the queue does not track ages.
pub(crate) fn oldest(stats: &QueueStats) -> Option<OldestAges> {
    let ages = OldestAges { ready: stats.oldest_ready.map(nanos), leased: stats.oldest_lease.map(nanos) };
    stats.ages_tracked.then_some(ages)
}

/// Converts a list of all keys to a snapshot of the model, which is sorted by key.
pub(crate) fn snapshot<K: Copy + Ord>(keys: &[KeyInfo<K>], stats: &QueueStats) -> QueueSnapshot<K> {
    let keys = keys.iter().map(|info| (info.key, seen(info.state), info.num_requeues));
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable_by_key(|(key, ..)| *key);
    QueueSnapshot { keys, paused: stats.paused, shut_down: stats.shutting_down }
}

/// Returns the Ready keys and the waiting keys, both in the order in which the queue lists them.
pub(crate) fn in_order<K: Copy>(keys: &[KeyInfo<K>]) -> (Vec<K>, Vec<K>) {
    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for info in keys {
        match info.state {
            KeyState::Ready => ready.push(info.key),
            KeyState::Waiting(_) => waiting.push(info.key),
            _ => {}
        }
    }
    (ready, waiting)
}

/// Sorts the Ready keys that cannot be handed out now, because the queue lists these in no defined order. The first `able` keys can be handed out, so
/// they are not sorted: they are already in hand-out order.
pub(crate) fn dequeue_order<K: Ord>(mut ready: Vec<K>, able: usize) -> Vec<K> {
    ready[able..].sort_unstable();
    ready
}

/// Compares leftovers. Sorts the leased keys, and the keys whose leases ended after the shutdown, before the comparison, because their order is not
/// guaranteed.
pub(crate) fn same<K: Copy + Ord + Debug>(
    left: Option<Leftovers<K>>,
    model: Option<OracleLeftovers<K>>,
    at: &impl Display,
) {
    assert_eq!(left.is_some(), model.is_some(), "{at}");
    let Some((left, model)) = left.zip(model) else { return };
    let (mut leased, mut late) = (left.leased, left.waiting.clone());
    leased.sort_unstable();
    late.retain(|key| !model.waiting.contains(key));
    late.sort_unstable();
    let mut waiting = left.waiting;
    waiting.retain(|key| model.waiting.contains(key));
    let (ready, able) = (dequeue_order(left.ready, model.able), model.able);
    assert_eq!(OracleLeftovers { ready, able, waiting, late, leased }, model, "{at}");
}
