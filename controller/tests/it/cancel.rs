//! No queued key is lost, however many times a controller is polled before it is dropped.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use flyball_controller::{Action, Controller, ControllerConfig};
use tokio::time::advance;

use crate::support::{HistorySource, Log, SECOND, queue, run_until_pending, sorted};

/// Polls a controller `polls` times, drops it, and runs a second controller over the same queue. Returns whether the first controller had reconciled
/// all keys.
async fn dropped_after(polls: u32) -> bool {
    let world = HistorySource::new();
    let things = world.informer();
    let queue = queue();
    for key in 0..4 {
        world.put(key, 0);
        queue.add(100 + key).unwrap();
    }
    things.synced().await.unwrap();
    let log = Log::new();
    let running = Arc::new(AtomicU32::new(0));
    let reconcile = |log: Log<u32>, running: Arc<AtomicU32>| {
        move |key: u32, _: flyball_controller::Context| {
            let (log, running) = (log.clone(), running.clone());
            async move {
                struct Running(Arc<AtomicU32>);
                impl Drop for Running {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                running.fetch_add(1, Ordering::SeqCst);
                let _running = Running(running);
                tokio::task::yield_now().await;
                log.note(key);
                Ok::<_, String>(Action::await_change())
            }
        }
    };
    let first_saw = {
        let mut first = pin!(
            Controller::new(queue.clone())
                .watches(&things, |change| *change.key())
                .with_config(ControllerConfig { workers: 2.into(), ..ControllerConfig::default() })
                .run(reconcile(log.clone(), running.clone()))
        );
        for _ in 0..polls {
            let polled = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "the controller is not shut down");
            // The spawned tasks of the controller run between the polls.
            tokio::task::yield_now().await;
        }
        log.take()
    };
    run_until_pending().await;
    assert_eq!(running.load(Ordering::SeqCst), 0, "poll {polls}: no reconcile outlives the controller");
    assert!(!queue.is_shutting_down(), "poll {polls}");
    assert_eq!(queue.stats().leased, 0, "poll {polls}: no key may stay leased");
    queue.check().unwrap();

    // Keys that were leased count as failed, and are retried after their backoff.
    let second = tokio::spawn(
        Controller::new(queue.clone())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig { workers: 2.into(), ..ControllerConfig::default() })
            .run(reconcile(log.clone(), running.clone())),
    );
    run_until_pending().await;
    advance(2 * SECOND).await;
    run_until_pending().await;
    assert!(
        crate::support::holds_nothing(&queue.stats()),
        "poll {polls}: the second controller must empty the queue"
    );
    let seen = sorted(log.take());
    for key in 0..4 {
        assert!(seen.contains(&key), "poll {polls}: the second one starts with all objects");
        let added = &(100 + key);
        assert!(first_saw.contains(added) || seen.contains(added), "poll {polls}: key {added} is lost");
    }
    second.abort();
    first_saw.len() == 8
}

#[tokio::test(start_paused = true)]
async fn dropped_at_every_poll_it_loses_nothing_that_was_queued() {
    let mut polls = 0;
    while !dropped_after(polls).await {
        polls += 1;
        assert!(polls < 1_000, "the controller never reconciles all keys");
    }
    assert!(polls > 3, "the controller was dropped after only {polls} different numbers of polls");
}

/// A reconcile may pass its context to a task that it spawns. That task must end with the run, however the run ends.
#[tokio::test(start_paused = true)]
async fn a_context_is_cancelled_when_the_run_ends_or_is_dropped() {
    for dropped in [false, true] {
        let (queue, contexts) = (queue(), Log::new());
        queue.add(1).unwrap();
        let own_contexts = contexts.clone();
        let running = Controller::new(queue.clone()).run(move |_, context| {
            own_contexts.note(context);
            async { Ok::<_, String>(Action::await_change()) }
        });
        let running = tokio::spawn(running);
        run_until_pending().await;
        let context = contexts.take().remove(0);
        assert!(!context.is_shutting_down());
        let waits = tokio::spawn({
            let context = context.clone();
            async move {
                context.shutdown_started().await;
                context.cancelled().await;
            }
        });
        match dropped {
            true => running.abort(),
            false => queue.shut_down(),
        }
        run_until_pending().await;
        assert!(running.is_finished() && context.is_cancelled(), "dropped: {dropped}");
        assert!(waits.is_finished(), "dropped: {dropped}");
    }
}
