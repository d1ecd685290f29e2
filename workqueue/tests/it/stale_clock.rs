//! Operations with an older time than an operation before them. This happens because a thread reads the clock before it takes the lock, and another
//! thread may overtake it in between.

use std::time::Duration;

use flyball_sync::{Clock, ManualClock, Monotonic, Nanos};
use flyball_workqueue::{AddOptions, DrainOptions, KeyState, Priority, Queue};

use crate::support::ns;

/// A Ready key that is raised to a higher priority has a second position in the order. An operation with an older time must not iterate over all of
/// these positions.
#[test]
fn a_time_that_goes_back_costs_no_walk_of_raised_keys() {
    const OPS: u64 = 1_000;
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    clock.set(Nanos::new(100));
    // Every second key is raised after its deadline has passed.
    let keys = 0..40_000_u32;
    for key in keys.clone() {
        if key % 2 == 0 { queue.add(key) } else { queue.add_after(key, ns(1)) }.unwrap();
    }
    queue.add_after(u32::MAX, Duration::from_secs(1)).unwrap();
    clock.set(Nanos::new(200));
    for key in keys.clone() {
        queue.add_with(key, AddOptions { priority: 5, ..AddOptions::default() }).unwrap();
    }
    let ops = |back: u64| {
        let times = (0..3).map(|_| {
            let began = Monotonic.now();
            for op in 0..OPS {
                clock.set(Nanos::new(1_000 - back * (op % 2)));
                queue.add(0).unwrap();
            }
            Monotonic.now().since(began)
        });
        times.min().unwrap()
    };
    let (forth, back) = (ops(0), ops(1));
    assert!(back < 20 * forth + Duration::from_millis(20), "{back:?} instead of {forth:?} for {OPS}");
}

/// After an operation with an older time, raised keys whose deadline is after that time wait again; the other raised keys stay Ready.
#[test]
fn a_time_that_goes_back_turns_back_those_that_are_early() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    for key in 0..20_u64 {
        queue
            .add_with(key, AddOptions { priority: -1, delay: ns(10 * (key + 1)), ..AddOptions::default() })
            .unwrap();
    }
    clock.set(Nanos::new(200));
    for key in (0..20).rev() {
        queue.add_with(key, AddOptions { priority: 3, ..AddOptions::default() }).unwrap();
        queue.check().unwrap();
    }
    // A key that was lowered, cancelled, postponed or handed out no longer has a second position.
    assert!(queue.set_priority(&3, -2) && queue.cancel(&4) && queue.postpone(&5, ns(1)));
    queue.check().unwrap();
    let first = queue.try_get().unwrap();
    for now in [150, 149, 100, 120, 40] {
        clock.set(Nanos::new(now));
        let _ = queue.add(100);
        queue.check().unwrap();
        for key in (0..20).filter(|key| ![3, 4, 5, *first].contains(key)) {
            let at = 10 * (key + 1);
            assert_eq!(
                queue.state(&key),
                if at > now { KeyState::Waiting(Nanos::new(at)) } else { KeyState::Ready }
            );
        }
    }
    clock.set(Nanos::new(1_000));
    let mut served = Vec::new();
    while let Ok(lease) = queue.try_get() {
        served.push(*lease);
        lease.done();
        queue.check().unwrap();
    }
    assert_eq!(served.len(), 19, "{served:?}");
}

/// If `keys` is called at an older time, it still returns each key once: a raised key that is no longer due is returned as waiting.
#[test]
fn a_time_that_goes_back_doubles_no_key_in_a_list() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    queue.add_after(1, ns(10)).unwrap();
    queue.add_after(2, ns(5)).unwrap();
    clock.set(Nanos::new(10));
    for key in [1, 2] {
        queue.add_with(key, AddOptions { priority: 5, ..AddOptions::default() }).unwrap();
    }
    clock.set(Nanos::new(7));
    let states: Vec<_> = queue.keys().into_iter().map(|info| (info.key, info.state)).collect();
    assert_eq!(states, [(2, KeyState::Ready), (1, KeyState::Waiting(Nanos::new(10)))]);
    let left = queue.blocking_drain(DrainOptions::serve_waiting(Duration::ZERO));
    assert_eq!((left.ready, left.waiting), (vec![2], vec![1]));
    queue.check().unwrap();
}
