//! Single operations on a store of any size, each timed separately, including the reading of the clock. This shows latency tails
//! and the growth with the size.

use std::hint::black_box;
use std::time::{Duration, Instant};

use peers_rust::draws::Draws;

use crate::Figures;
use crate::options::Options;
use crate::store::cache::{Lists, Reads, Writes};
use crate::store::pods::{NAMESPACES, Pod, fleet, nodes, updates};

/// The time limit of each kind of operation except the adds. Objects are added one after the other, then updated, read
/// and looked up at random; then they are listed, with a write before each list.
const MOST: Duration = Duration::from_secs(3);
const LISTS: usize = 300;

pub(crate) fn operations<C: Writes<Reader: Lists>>(options: &Options) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let mut cache = C::new(options.indexes);
    let reader = cache.reader();
    let mut figures = Figures::new();
    let added = timed(pods.clone(), None, |pod| cache.put(pod));
    figures.extend(tails(["add-p50", "add-p99", "add-p999"], added));
    let mut newer = updates(&pods, options.adds + LISTS, 1);
    let last = newer.split_off(options.adds);
    let updated = timed(newer, Some(MOST), |pod| cache.put(pod));
    figures.extend(tails(["update-p50", "update-p99", "update-p999"], updated));
    let keys: Vec<_> = pods.iter().map(<C::Reader as Reads>::key).collect();
    let got = timed(Draws::choices(3, options.adds, keys.len()), Some(MOST), |index| {
        assert!(reader.get(&keys[index as usize]).is_some(), "an object is missing");
    });
    figures.extend(tails(["get-p50", "get-p99", "get-p999"], got));
    let nodes = nodes(options.keys);
    let looked_up = timed(Draws::choices(2, options.adds, nodes.len()), Some(MOST), |node| {
        reader.by_node(&nodes[node as usize], |pod| {
            black_box(pod.version);
        });
    });
    figures.extend(tails(["by-index-p50", "by-index-p99", "by-index-p999"], looked_up));
    let (mut snapshots, mut lists) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    for pod in last {
        cache.put(pod);
        let start = Instant::now();
        let view = reader.view();
        snapshots.push(start.elapsed());
        <C::Reader as Lists>::walk(&view, |pod: &Pod| {
            black_box(pod);
        });
        drop(view);
        lists.push(start.elapsed());
        if begin.elapsed() > MOST {
            break;
        }
    }
    figures.extend(tails(["snapshot-p50", "snapshot-p99", "snapshot-p999"], snapshots));
    figures.extend(tails(["list-p50", "list-p99", "list-p999"], lists));
    figures
}

fn timed<T>(items: Vec<T>, most: Option<Duration>, mut work: impl FnMut(T)) -> Vec<Duration> {
    let mut taken = Vec::with_capacity(items.len());
    let begin = Instant::now();
    let mut last = begin;
    for item in items {
        work(item);
        let now = Instant::now();
        taken.push(now - last);
        last = now;
        if most.is_some_and(|most| now - begin > most) {
            break;
        }
    }
    taken
}

/// Percentiles in nanoseconds.
fn tails(names: [&'static str; 3], mut taken: Vec<Duration>) -> Vec<(&'static str, f64)> {
    taken.sort_unstable();
    let at = |permille: usize| taken[(taken.len() * permille / 1000).min(taken.len() - 1)].as_nanos() as f64;
    names.into_iter().zip([500, 990, 999].map(at)).collect()
}
