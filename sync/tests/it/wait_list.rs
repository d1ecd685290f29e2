//! Compares `WaitList` with a vector.

use flyball_sync::waiting::{Place, Released, WaitList};
use testkit::random::Random;

/// The expected content of the list: the waiters in order, and the served waiters with their results.
#[derive(Default)]
struct Naive {
    waiting: Vec<u32>,
    served: Vec<(u32, u32)>,
}

#[test]
fn serves_and_drops_waiters_like_a_vector() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (mut list, mut naive) = (WaitList::new(), Naive::default());
        let mut places: Vec<(u32, Place)> = Vec::new();
        for step in 0..200 {
            match random.below(6) {
                0..=2 => {
                    places.push((step, list.join(step)));
                    naive.waiting.push(step);
                }
                3 => {
                    let served = list.serve_first(step);
                    assert_eq!(
                        served,
                        (!naive.waiting.is_empty()).then(|| naive.waiting.remove(0)),
                        "seed {seed}"
                    );
                    naive.served.extend(served.map(|waiter| (waiter, step)));
                }
                4 if !places.is_empty() => {
                    let (waiter, place) = &places[random.below(places.len() as u64) as usize];
                    let at = naive.waiting.iter().position(|other| other == waiter);
                    // A slot that was served is not served again.
                    let served =
                        if list.served(place).is_some() { None } else { list.serve(place.slot(), step) };
                    assert_eq!(served, at.map(|at| naive.waiting.remove(at)), "seed {seed}");
                    naive.served.extend(served.map(|waiter| (waiter, step)));
                }
                _ if !places.is_empty() => {
                    let (waiter, place) = places.swap_remove(random.below(places.len() as u64) as usize);
                    let expected = match naive.served.iter().position(|(other, _)| *other == waiter) {
                        Some(at) => Released::Served(naive.served.remove(at).1),
                        None => {
                            naive.waiting.retain(|other| *other != waiter);
                            Released::Waiting(waiter)
                        }
                    };
                    assert_eq!(list.leave(place), expected, "seed {seed}");
                }
                _ => {}
            }
            list.check().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            let order: Vec<u32> = list.iter().map(|(_, waiter)| *waiter).collect();
            assert_eq!(order, naive.waiting, "seed {seed}");
            assert_eq!((list.waiting(), list.first()), (order.len(), order.first()), "seed {seed}");
        }
    }
}

#[test]
fn reuses_the_slots_of_waiters_that_left() {
    let mut list: WaitList<u8, ()> = WaitList::new();
    let (first, second) = (list.join(1), list.join(2));
    let slots = [first.slot(), second.slot()];
    list.leave(first);
    list.leave(second);
    let again = [list.join(3).slot(), list.join(4).slot()];
    assert_eq!((again[0].min(again[1]), again[0].max(again[1])), (slots[0], slots[1]));
}

/// A list whose last slot becomes free may give its memory back, and starts again with the first slot.
#[test]
fn a_list_starts_again_after_a_burst() {
    let mut list = WaitList::<u32, ()>::new();
    for _ in 0..3 {
        let places: Vec<_> = (0..3_000).map(|waiter| list.join(waiter)).collect();
        for (waiter, place) in (0..).zip(places) {
            assert_eq!(list.leave(place), Released::Waiting(waiter));
        }
        list.check().unwrap();
        let place = list.join(7);
        assert_eq!(place.slot(), 0);
        assert_eq!(list.leave(place), Released::Waiting(7));
    }
}
