//! More work than workers: who runs, and how long it waits, on virtual time.
//!
//! kube-runtime keeps keys that wait for a slot in a hash set and scans it from its first bucket, so low buckets win for
//! ever. The same load and the same simulator show it of that rule, and the opposite of every order of ours.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use flyball_ratelimit::{Clock, ManualClock, Nanos};
use flyball_workqueue::{Blocking, Fifo, Lease, NoLimit, Order, Queue};

const TICK: Duration = Duration::from_millis(1);

/// Keys `0..keys`, each of which is worked on for a while by one of the slots and comes back a while later.
struct Load {
    keys: u32,
    slots: usize,
    work: Duration,
    back: Duration,
    lasts: Duration,
}

/// Twice what ten slots can do: a key would like to run every 5 s, and 2000 runs take 9.8 s.
const OVERLOAD: Load = Load {
    keys: 2000,
    slots: 10,
    work: Duration::from_millis(49),
    back: Duration::from_secs(5),
    lasts: Duration::from_secs(60),
};

impl Load {
    /// One run of all keys.
    fn round(&self) -> Duration {
        self.work * self.keys.div_ceil(self.slots as u32)
    }

    /// Hand-outs if no slot is ever free.
    fn most(&self) -> usize {
        self.lasts.as_millis().div_ceil(self.work.as_millis()) as usize * self.slots
    }
}

/// What the simulator asks of a queue.
trait Simulated {
    type Held;
    fn add(&self, key: u32);
    fn try_take(&self) -> Option<(u32, Self::Held)>;
    fn come_back(&self, held: Self::Held, after: Duration);
}

type Ours<O> = Queue<u32, O, NoLimit, Blocking<ManualClock>>;

impl<O: Order> Simulated for Ours<O> {
    type Held = Lease<u32, Blocking<ManualClock>>;

    fn add(&self, key: u32) {
        Queue::add(self, key).unwrap();
    }

    fn try_take(&self) -> Option<(u32, Self::Held)> {
        self.try_get().ok().map(|lease| (*lease, lease))
    }

    fn come_back(&self, held: Self::Held, after: Duration) {
        held.requeue_after(after);
    }
}

/// What became of each key.
struct Seen {
    runs: BTreeMap<u32, usize>,
    /// From Ready to hand-out, or to the end for those who still wait.
    longest: BTreeMap<u32, Duration>,
    /// Hand-outs meanwhile.
    overtaken: BTreeMap<u32, usize>,
    hand_outs: usize,
}

impl Seen {
    fn never_run(&self) -> usize {
        self.runs.values().filter(|runs| **runs == 0).count()
    }

    fn longest(&self) -> Duration {
        *self.longest.values().max().unwrap()
    }

    fn overtaken(&self) -> usize {
        *self.overtaken.values().max().unwrap()
    }
}

/// All keys at once, then in steps of a millisecond: ends what is due, fills the slots.
fn simulate<Q: Simulated>(load: &Load, clock: &ManualClock, queue: &Q) -> Seen {
    let mut ready_at: BTreeMap<u32, Nanos> = (0..load.keys).map(|key| (key, clock.now())).collect();
    let mut seen = Seen {
        runs: (0..load.keys).map(|key| (key, 0)).collect(),
        longest: BTreeMap::new(),
        overtaken: BTreeMap::new(),
        hand_outs: 0,
    };
    let (mut at_work, mut hand_outs) = (VecDeque::<(Nanos, u32, Q::Held)>::new(), Vec::new());
    let end = clock.now() + load.lasts;
    let waited = |seen: &mut Seen, key, since: Nanos, hand_outs: &[Nanos], now: Nanos| {
        let meanwhile = hand_outs.len() - hand_outs.partition_point(|at| *at < since);
        let (longest, overtaken) =
            (seen.longest.entry(key).or_default(), seen.overtaken.entry(key).or_default());
        *longest = now.since(since).max(*longest);
        *overtaken = meanwhile.max(*overtaken);
    };
    (0..load.keys).for_each(|key| queue.add(key));
    while clock.now() < end {
        let now = clock.now();
        // The same time for all: they end in the order in which they began.
        while at_work.front().is_some_and(|(due, ..)| *due <= now) {
            let (_, key, held) = at_work.pop_front().expect("just seen");
            queue.come_back(held, load.back);
            ready_at.insert(key, now + load.back);
        }
        while at_work.len() < load.slots {
            let Some((key, held)) = queue.try_take() else { break };
            let since = ready_at.remove(&key).expect("a key is never with two slots at once");
            assert!(since <= now, "{key} ran before its time");
            waited(&mut seen, key, since, &hand_outs, now);
            *seen.runs.get_mut(&key).unwrap() += 1;
            hand_outs.push(now);
            at_work.push_back((now + load.work, key, held));
        }
        clock.advance(TICK);
    }
    for (key, since) in ready_at {
        waited(&mut seen, key, since.min(end), &hand_outs, end);
    }
    seen.hand_outs = hand_outs.len();
    seen
}

fn run<O: Order>(load: &Load, clock: ManualClock, queue: &Ours<O>) -> Seen {
    let seen = simulate(load, &clock, queue);
    queue.check().unwrap();
    seen
}

#[test]
fn first_in_first_out_starves_nobody() {
    let clock = ManualClock::new();
    let queue: Ours<Fifo> = Queue::builder().clock(clock.clone()).build();
    let seen = run(&OVERLOAD, clock, &queue);
    assert_eq!(seen.never_run(), 0);
    assert_eq!(seen.hand_outs, OVERLOAD.most(), "no slot is ever free");
    // Nobody is overtaken by anybody who came later, so not twice by the same key.
    assert!(seen.overtaken() < OVERLOAD.keys as usize, "{}", seen.overtaken());
    assert!(seen.longest() <= OVERLOAD.round(), "{:?}", seen.longest());
    let (least, most) = (seen.runs.values().min().unwrap(), seen.runs.values().max().unwrap());
    assert!(most - least <= 1, "turns are even: {least} to {most}");
}

/// kube-runtime's rule: of all keys that are due, the one in the first bucket.
struct FirstBucket {
    clock: ManualClock,
    due: RefCell<BTreeSet<(Nanos, u32)>>,
    /// By the hash that gives the bucket.
    pending: RefCell<BTreeMap<u64, u32>>,
}

impl Simulated for FirstBucket {
    type Held = u32;

    fn add(&self, key: u32) {
        self.due.borrow_mut().insert((self.clock.now(), key));
    }

    fn try_take(&self) -> Option<(u32, u32)> {
        let mut due = self.due.borrow_mut();
        while let Some((_, key)) = due.first().copied().filter(|(at, _)| *at <= self.clock.now()) {
            due.pop_first();
            self.pending.borrow_mut().insert(BuildHasherDefault::<DefaultHasher>::new().hash_one(key), key);
        }
        self.pending.borrow_mut().pop_first().map(|(_, key)| (key, key))
    }

    fn come_back(&self, held: u32, after: Duration) {
        self.due.borrow_mut().insert((self.clock.now() + after, held));
    }
}

#[test]
fn the_simulator_sees_starvation_where_there_is_some() {
    let clock = ManualClock::new();
    let (due, pending) = (RefCell::default(), RefCell::default());
    let queue = FirstBucket { clock: clock.clone(), due, pending };
    let seen = simulate(&OVERLOAD, &clock, &queue);
    // Those who come back within 5 s take all slots: the others never have a turn. kube-runtime 5.0: 982.
    assert!((900..1000).contains(&seen.never_run()), "{}", seen.never_run());
    assert_eq!(seen.longest(), OVERLOAD.lasts);
}
