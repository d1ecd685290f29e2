//! The workload of client-go's `BenchmarkSharedIndexInformer`: readers repeatedly list the one namespace with all pods,
//! while modifications go through a watch and an informer to a handler. At most ten modifications are in progress at a
//! time.
//!
//! As in that benchmark, a read iterates over all objects without reading their fields, and the watch has a capacity of
//! one event. The sender and the informer are tasks of one runtime (goroutines in Go); readers are threads. If the
//! sender had its own thread, each event would wake two threads. That alone would limit the rate to 13 000 per second
//! for any store, even without readers.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flyball_informer_cache::Informer;
use flyball_sync::TokioTimer;
use parking_lot::Mutex;
use peers_rust::draws::Draws;
use tokio::runtime::Builder;
use tokio::sync::mpsc::channel;

use crate::Figures;
use crate::fed::ChannelSource;
use crate::options::Options;
use crate::store::ours::{NAMESPACE, PODS, Reader};
use crate::store::pods::{fleet, newer};

const UNDER_WAY: usize = 10;

pub(crate) fn readers(options: &Options) -> Figures {
    let pods = fleet(options.keys, 1);
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (stop, reads, namespace) = (AtomicBool::new(false), AtomicU64::new(0), &*pods[0].namespace);
    thread::scope(|scope| {
        runtime.block_on(async {
            let (events, receiver) = channel(1);
            let source = ChannelSource::new(pods.clone(), receiver, |pod| pod);
            let builder = Informer::builder(PODS, source).index(&NAMESPACE).timer(TokioTimer::current());
            let (informer, run) = builder.build().expect("distinct names");
            let running = tokio::spawn(run);
            informer.synced().await.expect("it lists");
            let (begun, handled) = channel(UNDER_WAY);
            let handled = Mutex::new(handled);
            let writes = Arc::new(AtomicU64::new(0));
            let observer = informer.observe({
                let writes = writes.clone();
                move |change| {
                    if change.old().is_some() {
                        writes.fetch_add(1, Ordering::Relaxed);
                        let _ = handled.lock().try_recv();
                    }
                }
            });
            for _ in 0..options.sides {
                let store = informer.store().clone();
                scope.spawn(|| read(store, namespace, pods.len(), &stop, &reads));
            }
            let (mut draws, most) = (Draws(8), Duration::from_secs(options.seconds));
            let begin = Instant::now();
            for version in 2.. {
                events.send(newer(&pods[draws.next(pods.len())], version)).await.expect("it listens");
                begun.send(()).await.expect("it listens");
                if begin.elapsed() > most {
                    break;
                }
            }
            let per_second =
                |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
            let figures = [("reads", per_second(&reads)), ("writes", per_second(&writes))].into();
            stop.store(true, Ordering::Relaxed);
            informer.shut_down();
            running.await.expect("the informer");
            drop(observer);
            figures
        })
    })
}

fn read(store: Reader, namespace: &str, pods: usize, stop: &AtomicBool, reads: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let view = store.snapshot();
        let objects = view.by_index(&NAMESPACE, namespace).expect("the index is missing");
        assert_eq!(objects.len(), pods);
        objects.for_each(|pod| {
            black_box(&**pod);
        });
        reads.fetch_add(1, Ordering::Relaxed);
    }
}
