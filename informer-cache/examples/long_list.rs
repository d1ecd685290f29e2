//! Measures how long a list of 100 000 objects prevents the other tasks of a thread from running. The program prints the duration of the longest poll
//! of an informer's run future, for the first list and for a relist with a newer version of every object.
//!
//! `cargo run --release -p flyball-informer-cache --features testing --example long_list`

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{Index, Informer, Page, Schema, SourceError, SourceErrorKind, Version};
use flyball_sync::{Clock, ManualClock, Monotonic};

const OBJECTS: u64 = 100_000;

struct Pod {
    name: Arc<str>,
    version: u64,
    node: u64,
    owner: u64,
}

const PODS: Schema<Arc<str>, Pod> =
    Schema::new(|pod: &Pod| pod.name.clone(), |pod| Version::new(pod.version));
static BY_NODE: Index<Pod, u64> = Index::new("node", |pod| pod.node);
static BY_OWNER: Index<Pod, u64> = Index::new("owner", |pod| pod.owner);

fn page(version: u64) -> Page<Pod> {
    let pod = |number| Pod {
        name: format!("default/pod-{number}").into(),
        version,
        node: (number + version) % 1_000,
        owner: number / 3,
    };
    Page { items: (0..OBJECTS).map(pod).collect(), version: Version::new(version), continuation: None }
}

fn main() -> Result<(), Box<dyn Error>> {
    let wall = Monotonic;
    let (source, clock) = (ScriptedSource::new(), ManualClock::new());
    let builder = Informer::builder(PODS, source.clone()).index(&BY_NODE).index(&BY_OWNER);
    let (pods, run) = builder.timer(clock.timer()).build()?;
    let mut run = pin!(run);
    let reported = Arc::new(AtomicUsize::new(0));
    let count = reported.clone();
    let _observer = pods.observe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    // The program never takes a change from this subscription, so all changes stay pending.
    let changes = pods.subscribe();

    for version in [1, 2] {
        source.answer_list(Ok(page(version)));
        source.answer_watch(Ok(()));
        let (mut longest, mut all, mut turns) = (Duration::ZERO, Duration::ZERO, 0_u32);
        loop {
            let begun = wall.now();
            let ended = run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let turn = wall.now().since(begun);
            (longest, all, turns) = (longest.max(turn), all + turn, turns + 1);
            if ended
                || reported.load(Ordering::Relaxed) as u64 == version * OBJECTS && source.open_watches() > 0
            {
                break;
            }
            if let Some(alarm) = clock.next_alarm().filter(|_| source.open_watches() == 0) {
                clock.set(alarm);
            }
        }
        println!(
            "list {version}: longest turn {longest:.1?}, of {turns} that took {all:.0?}; {} pending",
            changes.pending()
        );
        source.fail_watch(SourceError::new(SourceErrorKind::Expired, "too old"));
    }
    Ok(())
}
