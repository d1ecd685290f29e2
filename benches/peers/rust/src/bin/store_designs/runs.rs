//! The measurements of a design.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use benches::designs::{Design, Entry, hash};
use peers_rust::heap::growth;

use rustix::time::{ClockId, clock_gettime};

use crate::report::Figures;
use crate::store::{Padded, Store};
use crate::world::World;

const THREADS: usize = 8;
const GETS: usize = 200_000;
const UPDATES: usize = 100_000;
const COPIES: usize = 2_000;
const DELETES: usize = 20_000;
const SNAPSHOTS: usize = 10_000;
const VALUES: usize = 300;
const BESIDE: Duration = Duration::from_millis(250);

/// All figures of a design. Memory is measured only if `first` is set.
pub(crate) fn all<D: Design>(world: &World, first: bool) -> Figures {
    let mut figures = Figures::default();
    let store = Store::<D>::default();
    let time = timed(|| {
        for number in &world.shuffled {
            store.upsert(&world.pods[0][*number as usize]);
        }
    });
    figures.push(("add, ns", per(time, world.shuffled.len())));
    reads(&store, world, &mut figures);
    writes(&store, world, &mut figures);
    beside_lister(&store, world, &mut figures);

    let mut built = None;
    let build = || {
        let mut design = D::default();
        for number in &world.sorted {
            design.upsert(Entry::new(world.pods[1][*number as usize].clone()));
        }
        design
    };
    let time = timed(|| built = Some(build()));
    figures.push(("replace, built aside, ns/object", per(time, world.sorted.len())));
    let mut replaced = Some(store.snapshot());
    let time = timed(|| store.replace(built.take().expect("built above")));
    figures.push(("replace, the swap, ns", per(time, 1)));
    let time = timed(|| replaced = None);
    figures.push(("drop all, ns/object", per(time, world.sorted.len())));
    drop(store);
    if first {
        let (built, bytes, allocations) = growth(build);
        figures.push(("bytes/object", bytes as f64 / world.sorted.len() as f64));
        figures.push(("allocations/object", allocations as f64 / world.sorted.len() as f64));
        drop(built);
    }
    figures
}

fn reads<D: Design>(store: &Store<D>, world: &World, figures: &mut Figures) {
    let time = timed(|| {
        for pod in world.random(0).take(GETS) {
            black_box(store.get(&pod.key).expect("there"));
        }
    });
    figures.push(("get, 1 thread, ns", per(time, GETS)));
    let view = store.snapshot();
    let time = timed(|| {
        for pod in world.random(0).take(GETS) {
            black_box(view.get(hash(&pod.key), &pod.key).expect("there"));
        }
    });
    figures.push(("get, 1 thread, in a snapshot, by reference, ns", per(time, GETS)));

    let time = on_threads(|thread| {
        for pod in world.random(0).skip(thread * 1000).take(GETS / THREADS) {
            black_box(store.get(&pod.key).expect("there"));
        }
    });
    figures.push(("get, 8 threads, one lock, CPU ns", per(time, GETS)));
    let stores: Vec<_> = (0..THREADS).map(|_| Padded(Store::new(D::clone(&view)))).collect();
    let time = on_threads(|thread| {
        for pod in world.random(0).skip(thread * 1000).take(GETS / THREADS) {
            black_box(stores[thread].0.get(&pod.key).expect("there"));
        }
    });
    figures.push(("get, 8 threads, a lock each, CPU ns", per(time, GETS)));
    let time = on_threads(|thread| {
        let view = store.snapshot();
        for pod in world.random(0).skip(thread * 1000).take(GETS / THREADS) {
            black_box(view.get(hash(&pod.key), &pod.key).cloned().expect("there"));
        }
    });
    figures.push(("get, 8 threads, a snapshot each, CPU ns", per(time, GETS)));

    let nodes = || world.choices.iter().map(|number| &world.nodes[*number as usize % world.nodes.len()]);
    let mut hits = 0;
    let time = timed(|| {
        for node in nodes().take(VALUES) {
            let versions = view.by_index(0, node).map(|pod| (1, pod.version));
            let (count, sum) =
                versions.fold((0, 0), |(hits, sum), (hit, version)| (hits + hit, sum + version));
            hits += black_box((count, sum)).0;
        }
    });
    figures.push(("by_index, iterated, ns/100 hits", per(time, hits) * 100.0));
    let time = timed(|| {
        for node in nodes().take(VALUES) {
            black_box(view.by_index(0, node).cloned().collect::<Vec<_>>());
        }
    });
    figures.push(("by_index, collected, ns/100 hits", per(time, hits) * 100.0));

    let time = timed(|| {
        for _ in 0..SNAPSHOTS {
            black_box(store.snapshot());
        }
    });
    figures.push(("snapshot, ns", per(time, SNAPSHOTS)));
    let mut listed = 0;
    let time = timed(|| listed = list(&*view));
    assert_eq!(listed, world.sorted.len() as u64, "the list does not contain every object once");
    figures.push(("list, ns/object", per(time, world.sorted.len())));
}

fn writes<D: Design>(store: &Store<D>, world: &World, figures: &mut Figures) {
    let time = timed(|| world.random(1).take(UPDATES).for_each(|pod| store.upsert(pod)));
    figures.push(("update, ns", per(time, UPDATES)));
    let time = timed(|| {
        for pod in world.random(0).take(COPIES) {
            let view = store.snapshot();
            store.upsert(pod);
            drop(view);
        }
    });
    figures.push(("update, a new snapshot before each, ns", per(time, COPIES)));
    let time = timed(|| {
        for pod in world.random(1).skip(5_000).take(DELETES) {
            store.delete(&pod.key);
            store.upsert(pod);
        }
    });
    figures.push(("delete and add, ns", per(time, DELETES)));
}

/// Measures updates alone, then updates while another thread takes snapshots and lists their objects.
fn beside_lister<D: Design>(store: &Store<D>, world: &World, figures: &mut Figures) {
    let alone = updates(store, world);
    figures.push(("updates/s alone", rate(&alone)));
    let done = AtomicBool::new(false);
    let mut beside = Vec::new();
    let mut lists = 0;
    thread::scope(|scope| {
        let lister = scope.spawn(|| {
            let mut lists = 0;
            // Ordering: Relaxed; the flag only stops the loop, and the thread is joined.
            while !done.load(Ordering::Relaxed) {
                black_box(list(&*store.snapshot()));
                lists += 1;
            }
            lists
        });
        beside = updates(store, world);
        // Ordering: Relaxed, as for the load above.
        done.store(true, Ordering::Relaxed);
        lists = lister.join().expect("the lister");
    });
    figures.push(("updates/s beside a lister", rate(&beside)));
    beside.sort_unstable();
    figures.push(("p99.9 of these, µs", beside[beside.len() * 999 / 1000].as_nanos() as f64 / 1e3));
    figures.push(("max of these, µs", beside[beside.len() - 1].as_nanos() as f64 / 1e3));
    figures.push(("lists/s beside the updates", f64::from(lists) / BESIDE.as_secs_f64()));
}

fn updates<D: Design>(store: &Store<D>, world: &World) -> Vec<Duration> {
    let mut all = Vec::with_capacity(2_000_000);
    let mut before = Instant::now();
    let end = before + BESIDE;
    for pod in world.random(1) {
        store.upsert(pod);
        let now = Instant::now();
        all.push(now - before);
        before = now;
        if now > end {
            break;
        }
    }
    all
}

fn list<D: Design>(view: &D) -> u64 {
    view.iter().fold(0, |count, pod| count + u64::from(black_box(pod.version) > 0))
}

/// Returns the CPU time of all threads together, from the moment all are ready. Divided by the number of cores, this time
/// is the best possible wall time.
pub(crate) fn on_threads(work: impl Fn(usize) + Sync) -> Duration {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                timed(|| work(thread))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("a reader")).sum()
    })
}

/// Returns the CPU time of this thread. Other load on the machine affects it only through the caches.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = ran();
    work();
    ran() - start
}

fn ran() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn per(time: Duration, ops: usize) -> f64 {
    time.as_nanos() as f64 / ops as f64
}

fn rate(updates: &[Duration]) -> f64 {
    updates.len() as f64 / updates.iter().sum::<Duration>().as_secs_f64()
}
