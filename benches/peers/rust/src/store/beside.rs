//! Updates by one thread, alone and while another thread lists all objects in a loop. If a store has snapshots, the lister iterates over a whole
//! snapshot: this is the counterpart of the other stores' list, for which they iterate over all objects, too. The lister does not read the objects:
//! if it did, a writer that is blocked while a list is built would get additional time to run during these reads.
//!
//! No index value changes. A write is timed from the end of the previous one, so the time includes every delay. The
//! figures include the complete lists per second: without them, a starved lister would make the writer look fast.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Figures;
use crate::clock::percentiles;
use crate::options::Options;
use crate::store::cache::{Lists, Writes, filled};
use crate::store::pods::{NAMESPACES, Pod, fleet, updates};

pub(crate) fn beside<C: Writes<Reader: Lists>>(options: &Options) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let mut cache: C = filled(options.indexes, &pods);
    let reader = cache.reader();
    let mut updates = updates(&pods, 2 * options.adds, 1);
    let rest = updates.split_off(options.adds);
    drop(pods);
    let most = Duration::from_secs(options.seconds);
    let alone = write(&mut cache, updates, most);
    let (stop, lists) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (beside, taken) = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                <C::Reader as Lists>::walk(&reader.view(), |pod: &Pod| {
                    black_box(pod);
                });
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        while lists.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        let before = lists.load(Ordering::Relaxed);
        let beside = write(&mut cache, rest, most);
        let taken = lists.load(Ordering::Relaxed) - before;
        stop.store(true, Ordering::Relaxed);
        (beside, taken)
    });
    let mean = |gaps: &[Duration]| {
        let total: Duration = gaps.iter().sum();
        (total.as_secs_f64(), total.as_secs_f64() * 1e6 / gaps.len() as f64)
    };
    let ((_, alone), (seconds, us)) = (mean(&alone), mean(&beside));
    let mut figures = percentiles(beside);
    figures.extend([("alone", alone), ("us", us), ("times", us / alone)]);
    figures.insert("lists", taken as f64 / seconds);
    figures
}

/// Writes all updates, or as many as the time limit allows. Returns the time from the end of each write to the end of the next one.
fn write<C: Writes>(cache: &mut C, updates: Vec<Pod>, most: Duration) -> Vec<Duration> {
    let mut gaps = Vec::with_capacity(updates.len());
    let begin = Instant::now();
    let mut last = begin;
    for pod in updates {
        cache.put(pod);
        let now = Instant::now();
        gaps.push(now - last);
        last = now;
        if now - begin > most {
            break;
        }
    }
    gaps
}
