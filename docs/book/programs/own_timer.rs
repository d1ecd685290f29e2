//! A timer for your own event loop. The loop of this example runs on the main thread.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flyball_workqueue::{Clock, Monotonic, Nanos, Queue, Timer};

/// Stores one alarm, which all clones share. The event loop checks the alarm in each iteration.
#[derive(Clone, Default)]
struct LoopTimer(Arc<Mutex<Option<(Nanos, Waker)>>>);

impl Clock for LoopTimer {
    fn now(&self) -> Nanos {
        Monotonic.now()
    }
}

impl Timer for LoopTimer {
    fn wake_at(&self, at: Nanos, waker: &Waker) {
        *self.0.lock().unwrap() = Some((at, waker.clone())); // replaces the alarm that was set before
    }
}

impl LoopTimer {
    /// Wakes the alarm's waker if the alarm is due. If it is not due, a real event loop would now wait for events, at most until the time of the
    /// alarm.
    fn turn(&self) {
        let due = self.0.lock().unwrap().take_if(|(at, _)| *at <= self.now());
        if let Some((_, waker)) = due {
            waker.wake(); // outside the lock, as the waker may call `wake_at`
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = LoopTimer::default();
    let queue = Queue::builder().timer(timer.clone()).build();
    queue.add_after("second", Duration::from_millis(20))?;
    queue.add_after("first", Duration::from_millis(10))?;

    for _ in 0..2 {
        let mut get = Box::pin(queue.get());
        let lease = loop {
            match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lease) => break lease.ok_or("the queue is closed")?,
                Poll::Pending => timer.turn(),
            }
        };
        println!("got {}", *lease);
        lease.done();
    }
    Ok(())
}
