//! `Queue::keys` returns all keys of a queue at one time; the result can be serialized.

use flyball_sync::Nanos;
use flyball_workqueue::{KeyInfo, KeyState, Queue};

use crate::support::{BackoffQueue, backoff, ns};

fn rows(keys: &[KeyInfo<&'static str>]) -> Vec<(&'static str, KeyState, u32)> {
    keys.iter().map(|info| (info.key, info.state, info.num_requeues)).collect()
}

/// Returns a queue at time 25 with a key in every state. Since time 0 no operation has moved keys whose deadline has passed.
fn every_state() -> BackoffQueue {
    let (queue, clock) = backoff();
    _ = queue.add_many(["leased", "dirty", "leased, waits", "leased, due"]);
    let leases = queue.try_get_many(4).unwrap();
    for lease in leases {
        let _ = lease.detach();
    }
    queue.add("dirty").unwrap();
    queue.add_after("leased, waits", ns(50)).unwrap();
    queue.add_after("leased, due", ns(20)).unwrap();
    queue.add_after("late", ns(90)).unwrap();
    queue.add_after("soon", ns(40)).unwrap();
    queue.add_rate_limited("due, failed").unwrap();
    queue.add("ready").unwrap();
    clock.advance(ns(25));
    queue
}

/// `keys` returns Ready and due keys in the order of hand-out, then waiting keys by deadline, then leased keys.
#[test]
fn a_snapshot_shows_everything_in_order() {
    let queue = every_state();
    queue.add("last").unwrap();
    let (ready, rest) =
        rows(&queue.keys()).into_iter().partition::<Vec<_>, _>(|row| row.1 == KeyState::Ready);
    assert_eq!(
        ready,
        [("ready", KeyState::Ready, 0), ("due, failed", KeyState::Ready, 1), ("last", KeyState::Ready, 0)]
    );
    let waiting = |at| KeyState::Waiting(Nanos::new(at));
    assert_eq!(rest[..2], [("soon", waiting(40), 0), ("late", waiting(90), 0)]);
    let mut leased = rest[2..].to_vec();
    leased.sort_unstable_by_key(|row| row.0);
    assert_eq!(
        leased,
        [
            ("dirty", KeyState::LeasedDirty, 0),
            ("leased", KeyState::Leased, 0),
            ("leased, due", KeyState::LeasedDirty, 0),
            ("leased, waits", KeyState::LeasedWaiting(Nanos::new(50)), 0),
        ]
    );
    let stats = queue.stats();
    assert!(!stats.paused && !stats.shutting_down);
    let order: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|lease| lease.detach())).collect();
    assert_eq!(order, ["ready", "due, failed", "last"], "`keys` does not return the order of hand-out");
}

/// `keys` returns a copy: the call changes nothing, and later operations do not change the copy.
#[test]
fn a_snapshot_is_a_copy() {
    let queue = every_state();
    let before = queue.keys();
    assert_eq!(queue.keys(), before);
    queue.check().unwrap();
    drop(queue.stop_now());
    assert_eq!(before.len(), 8);
    assert!(queue.keys().iter().all(|record| record.state == KeyState::Leased));
}

#[test]
fn a_snapshot_contains_the_state_of_the_queue() {
    let queue: Queue<u32> = Queue::new();
    let flags = || {
        assert!(queue.keys().is_empty());
        let stats = queue.stats();
        (stats.paused, stats.shutting_down)
    };
    assert_eq!(flags(), (false, false));
    queue.pause();
    assert_eq!(flags(), (true, false));
    queue.shut_down();
    assert_eq!(flags(), (true, true));
    queue.resume();
    assert_eq!(flags(), (false, true));
}

/// Deserializing the serialized data returns the same data.
#[cfg(feature = "serde")]
mod serde {
    use flyball_workqueue::Leftovers;

    use super::*;

    fn copy<T: ::serde::Serialize + ::serde::de::DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
    }

    #[test]
    fn data_round_trips() {
        let queue = every_state();
        queue.pause();
        let keys = queue.keys();
        let text = serde_json::to_string(&keys).unwrap();
        let read: Vec<KeyInfo<String>> = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(read.len(), keys.len());
        for (read, own) in read.iter().zip(&keys) {
            assert_eq!(
                (read.key.as_str(), read.state, read.num_requeues),
                (own.key, own.state, own.num_requeues)
            );
        }
        let stats = queue.stats();
        assert!(stats.paused);
        assert_eq!(copy(&stats), stats);
        let left = queue.stop_now();
        let text = serde_json::to_string(&left).unwrap();
        let read: Leftovers<String> = serde_json::from_str(&text).unwrap();
        assert_eq!((read.ready.len(), read.waiting.len(), read.leased.len()), (2, 2, 4));
        assert_eq!(
            (read.ready, read.waiting),
            (vec!["ready".into(), "due, failed".into()], vec!["soon".into(), "late".into()])
        );
    }

    /// The field names are part of the public interface, because a program may read data that an earlier version of the crate has stored.
    #[test]
    fn the_names_in_the_data() {
        let (queue, _clock) = backoff();
        queue.add_rate_limited("a").unwrap();
        let text = serde_json::to_string(&queue.keys()).unwrap();
        assert_eq!(text, r#"[{"key":"a","state":{"Waiting":10},"num_requeues":1}]"#);
        let text = serde_json::to_string(&queue.stats()).unwrap();
        assert_eq!(
            text,
            r#"{"ready":0,"waiting":1,"leased":0,"dirty":0,"leased_waiting":0,"capacity_left":null,"next_deadline":10,"paused":false,"shutting_down":false,"ages_tracked":false,"oldest_ready":null,"oldest_available":null,"oldest_lease":null,"unfinished_work":{"secs":0,"nanos":0},"adds":0,"delayed_adds":0}"#
        );
        assert_eq!(
            serde_json::to_string(&queue.stop_now()).unwrap(),
            r#"{"ready":[],"waiting":["a"],"leased":[]}"#
        );
    }
}
