//! Adding keys with a delay.

use std::time::Duration;

use peers_rust::draws::Draws;
use peers_rust::heap::growth;
use tokio::runtime::Builder;

use crate::Figures;
use crate::clock::{measured, ns};
use crate::delaying::Delaying;
use crate::keys::{Key, keys};
use crate::options::Options;

/// Distinct delays of one to two hours, in random order.
fn far(count: usize) -> Vec<Duration> {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut all: Vec<Duration> = (0..count).map(|i| HOUR + (HOUR / count as u32) * i as u32).collect();
    let mut draws = Draws(2);
    for i in (1..count).rev() {
        all.swap(i, draws.next(i + 1));
    }
    all
}

fn fill<D: Delaying>(keys: &[Key], delays: &[Duration]) -> D {
    let mut queue = D::new();
    for (key, delay) in keys.iter().zip(delays) {
        queue.add_after(key.clone(), *delay);
    }
    queue
}

/// Adds distinct keys, each with a far deadline.
pub(crate) fn add<D: Delaying>(options: &Options) -> Figures {
    let (keys, delays) = (keys(options.keys), far(options.keys));
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let (queue, time) = measured(|| fill::<D>(&keys, &delays));
    assert_eq!(queue.waiting(), keys.len());
    ns(time, keys.len())
}

/// Measures the live heap of a queue with waiting keys. Two things are not counted: the strings of the keys, which are
/// allocated before the measurement, and one `Key` (a pointer and a length) per key.
pub(crate) fn bytes<D: Delaying>(options: &Options) -> Figures {
    let (keys, delays) = (keys(options.keys), far(options.keys));
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let (queue, bytes, _) = growth(|| fill::<D>(&keys, &delays));
    assert_eq!(queue.waiting(), keys.len());
    let beside = bytes as f64 / keys.len() as f64 - size_of::<Key>() as f64;
    [("bytes", beside)].into()
}
