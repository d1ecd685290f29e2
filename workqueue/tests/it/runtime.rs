//! The runtime of a queue's `TokioTimer` was shut down, or has no timer: waiters on other runtimes and threads are still served.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{TokioTimer, block_on};
use flyball_workqueue::{Fifo, Queue};
use tokio::runtime::{Builder, Runtime};

use crate::task::Task;

const SOON: Duration = Duration::from_millis(2);
const HOUR: Duration = Duration::from_secs(3600);

type Keys = Queue<&'static str, Fifo, Exponential<&'static str>, TokioTimer>;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn queue_on(runtime: &Runtime) -> Keys {
    let _inside = runtime.enter();
    Queue::builder().timer(TokioTimer::current()).limiter(Exponential::new(SOON..=SOON)).build()
}

/// A queue whose runtime was shut down, and a queue whose runtime has no timer.
fn queues() -> [Keys; 2] {
    let gone = runtime();
    let without_time = Builder::new_current_thread().build().unwrap();
    [queue_on(&gone), queue_on(&without_time)]
}

#[test]
fn a_thread_gets_delayed_keys_after_the_runtime_was_dropped() {
    for queue in queues() {
        let getter = thread::spawn({
            let queue = queue.clone();
            move || {
                queue.blocking_get().unwrap().retry();
                queue.blocking_get().unwrap().succeed();
            }
        });
        queue.add_after("a", SOON).unwrap();
        getter.join().unwrap();
        assert!(!queue.has_ready());
    }
}

#[test]
fn a_task_of_another_runtime_gets_delayed_keys_after_the_first_was_dropped() {
    for queue in queues() {
        queue.add_after("a", SOON).unwrap();
        runtime().block_on(async { queue.get().await.unwrap().retry() });
        // The second `get` runs without any runtime.
        block_on(async { queue.get().await.unwrap().succeed() });
        let mut far = Task::waiting(queue.get());
        queue.add_after("b", HOUR).unwrap();
        queue.add_after("c", Duration::ZERO).unwrap();
        assert_eq!(*far.finish().unwrap(), "c");
    }
}

/// The queue sets its alarm on a runtime, which is then shut down. A task of a different runtime is still woken.
#[test]
fn a_parked_task_of_another_runtime_keeps_its_alarm() {
    let first = runtime();
    let queue = queue_on(&first);
    queue.add_after("b", HOUR).unwrap();
    let mut later = Task::waiting(queue.get());
    // This add sets the alarm again. Polling the task could set the alarm, too, but the poll might come so late that the key is Ready already and the
    // task takes it.
    queue.add_after("a", SOON).unwrap();
    drop(first);
    let waiting = thread::spawn({
        let queue = queue.clone();
        move || *block_on(queue.get()).unwrap()
    });
    // One of the two getters takes the key. The shutdown of the runtime may wake the task before the key is due; then the task waits again.
    let mut lease = None;
    while lease.is_none() && !waiting.is_finished() {
        if later.was_woken()
            && let Poll::Ready(first) = later.poll()
        {
            lease = Some(first.unwrap());
        }
        thread::yield_now();
    }
    if let Some(lease) = lease {
        assert_eq!(*lease, "a");
        queue.add("c").unwrap();
    }
    let last = waiting.join().unwrap();
    assert!(["a", "c"].contains(&last), "{last}");
}

#[test]
fn the_runtime_may_be_dropped_with_an_alarm_set() {
    let first = runtime();
    let queue = queue_on(&first);
    queue.add_after("a", HOUR).unwrap();
    let mut getter = Task::waiting(queue.get());
    drop(first);
    assert!(getter.poll().is_pending());
    queue.add("b").unwrap();
    assert!(getter.was_woken());
    assert_eq!(*getter.finish().unwrap(), "b");
    queue.check().unwrap();
}
