//! Idle queues with a limiter: each has one key that waits for an hour, and one worker that waits for a key. Measures
//! their CPU time, tasks and threads.
//!
//! The worker tasks belong to the user and are not counted.

use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::Queue;
use tokio::runtime::{Builder, Handle};

use crate::Figures;
use crate::keys::Key;
use crate::options::Options;
use crate::system;

pub(crate) fn idle(options: &Options) -> Figures {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let (threads, mut held) = (system::threads(), Vec::new());
        for _ in 0..options.keys {
            let limiter = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
            let queue = Queue::builder().timer(TokioTimer::current()).limiter(limiter).build();
            let key: Key = "namespace-0000/name-0000000000".into();
            queue.add_after(key, Duration::from_secs(3600)).expect("open");
            let worker = queue.clone();
            tokio::spawn(async move { worker.get().await.map(|lease| lease.done()) });
            held.push(queue);
        }
        // Creating the queues causes background work, which ends during this sleep, before the measurement starts.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = system::cpu();
        tokio::time::sleep(Duration::from_secs(options.seconds)).await;
        let cpu = (system::cpu() - before).as_millis() as f64 / options.seconds as f64;
        let tasks = Handle::current().metrics().num_alive_tasks() - held.len();
        [("cpu", cpu), ("tasks", tasks as f64), ("threads", (system::threads() - threads) as f64)].into()
    })
}
