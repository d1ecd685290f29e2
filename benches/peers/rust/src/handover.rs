//! One worker waits; a thread then adds one key. Measures the time from add to receipt, one key at a time.
//!
//! The adder is a separate thread, so the worker's runtime really parks and has to be woken.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flyball_workqueue::Queue;
use futures::StreamExt;
use kube_runtime::scheduler::{ScheduleRequest, scheduler};
use peers_rust::draws::Draws;
use tokio::runtime::Builder;

use crate::Figures;
use crate::clock::percentiles;
use crate::keys::{Key, keys};
use crate::options::{Options, Party};

type Receipts = mpsc::Sender<Instant>;

pub(crate) fn handover(options: &Options, party: Party) -> Figures {
    let (sender, receipts) = mpsc::channel();
    let (add, worker): (Box<dyn Fn(Key)>, _) = match party {
        Party::Kube => {
            let (requests, queued) = futures::channel::mpsc::unbounded();
            let add = move |message| {
                let run_at = tokio::time::Instant::now();
                requests.unbounded_send(ScheduleRequest { message, run_at }).expect("it listens");
            };
            let worker = thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
                runtime.block_on(async {
                    let mut scheduled = scheduler(queued);
                    while scheduled.next().await.is_some() {
                        sender.send(Instant::now()).expect("it listens");
                    }
                });
            });
            (Box::new(add), worker)
        }
        _ => {
            let queue = Queue::new();
            let worker = worker(party, queue.clone(), sender);
            let add = move |key| {
                queue.add(key).expect("open");
            };
            (Box::new(add), worker)
        }
    };
    let mut draws = Draws(4);
    let mut taken = Vec::with_capacity(options.keys);
    for key in keys(options.keys) {
        // The sleep is long enough for the worker to park. Its duration is random, so that the adds do not always
        // come at the same moment between two timer ticks.
        thread::sleep(Duration::from_nanos(200_000 + draws.next(1_000_000) as u64));
        let start = Instant::now();
        add(key);
        taken.push(receipts.recv().expect("a receipt").duration_since(start));
    }
    // The worker stops with the process: kube's scheduler has no shutdown.
    drop(worker);
    percentiles(taken)
}

fn worker(party: Party, queue: Queue<Key>, receipts: Receipts) -> thread::JoinHandle<()> {
    let serve = async move |queue: Queue<Key>, receipts: Receipts| {
        while let Some(lease) = queue.get().await {
            let now = Instant::now();
            lease.done();
            receipts.send(now).expect("it listens");
        }
    };
    thread::spawn(move || match party {
        Party::OursBlocking => {
            while let Some(lease) = queue.blocking_get() {
                let now = Instant::now();
                lease.done();
                receipts.send(now).expect("it listens");
            }
        }
        Party::OursMultiThread => {
            let runtime = Builder::new_multi_thread().enable_time().build().expect("a runtime");
            // The worker is a spawned task, because `block_on` would run the future on this thread.
            runtime.block_on(runtime.spawn(serve(queue, receipts))).expect("the worker panicked");
        }
        _ => Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(serve(queue, receipts)),
    })
}
