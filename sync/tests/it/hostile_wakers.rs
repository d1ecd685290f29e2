//! Wakers that panic when they are woken, cloned or dropped: the other alarms fire, and a panic does not reach the thread that drives the timers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_sync::waiting::{ContainedWaker, WakeBatch, wake_all};
use flyball_sync::{Clock, ManualClock, Nanos, ThreadTimer, Timer};
use testkit::wakers::{Counting, HostileWaker, Panicking, WakerCall};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const CALLS: [WakerCall; 3] = [WakerCall::Wake, WakerCall::Clone, WakerCall::Drop];

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Sends a message when it is woken.
struct Sends(std::sync::mpsc::Sender<()>);

impl Wake for Sends {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn all_wakers_are_woken_and_the_first_panic_is_returned() {
    let (counter, friendly) = Counting::waker();
    let hostile = || Waker::from(Arc::new(Panicking));
    assert!(wake_all([friendly.clone(), hostile(), friendly.clone(), hostile(), friendly.clone()]).is_err());
    assert_eq!(counter.wakes(), 3);
    assert!(wake_all([friendly.clone()]).is_ok());
    let mut batch = WakeBatch::new();
    batch.push(hostile());
    batch.push(friendly);
    assert!(batch.wake().is_err() && batch.is_empty());
    assert_eq!(counter.wakes(), 5);
}

#[test]
fn a_contained_waker_never_panics_and_wakes_the_last_waker_once() {
    for call in CALLS {
        let hostile = HostileWaker::new();
        let contained = ContainedWaker::new();
        contained.waker().wake_by_ref();
        assert!(contained.replace(Some(hostile.waker())).is_none());
        hostile.panic_in(Some(call));
        let copy = contained.waker().clone();
        copy.wake_by_ref();
        copy.wake();
        assert_eq!((hostile.wakes(), hostile.live()), (1, 0), "{call:?}");
        assert!(contained.replace(Some(hostile.waker())).is_none());
        let replaced = contained.replace(Some(hostile.waker()));
        assert_eq!(panics(|| drop(replaced)), call == WakerCall::Drop);
        drop(contained);
        assert_eq!((hostile.wakes(), hostile.live()), (1, 0), "{call:?}");
    }
}

/// Sets an alarm of the hostile waker before and after the alarms of others, and lets `call` panic at the times at which it may.
fn on_manual_clock(call: WakerCall) {
    let clock = ManualClock::new();
    let hostile = HostileWaker::new();
    let (counter, friendly) = Counting::waker();
    let timers: Vec<_> = (0..100).map(|_| clock.timer()).collect();
    let at = |second| Nanos::ZERO + SECOND * second;
    for (number, timer) in timers.iter().enumerate() {
        let waker = if number % 2 == 0 { hostile.waker() } else { friendly.clone() };
        timer.wake_at(at(1), &waker);
    }
    hostile.panic_in(Some(call));
    assert_eq!(panics(|| clock.advance(SECOND)), call == WakerCall::Wake);
    assert_eq!(
        (hostile.wakes(), counter.wakes(), clock.next_alarm(), clock.now()),
        (50, 50, None, at(1)),
        "{call:?}"
    );
    assert_eq!(hostile.live(), 0);

    // A clone that panics leaves the alarm as it was, and a drop that panics does not prevent the new one.
    hostile.panic_in(None);
    timers[0].wake_at(at(2), &hostile.waker());
    let waker = hostile.waker();
    hostile.panic_in(Some(call));
    let cloned = panics(|| timers[0].wake_at(at(3), &waker));
    assert_eq!(cloned, call != WakerCall::Wake);
    assert_eq!(clock.next_alarm(), Some(at(if call == WakerCall::Clone { 2 } else { 3 })));
    hostile.panic_in(None);
    drop((timers, waker));
    assert_eq!((hostile.live(), clock.next_alarm()), (0, None));
}

#[test]
fn a_manual_clock_fires_all_due_alarms_before_it_panics() {
    CALLS.into_iter().for_each(on_manual_clock);
}

#[test]
fn the_thread_of_the_timers_survives() {
    for call in CALLS {
        let hostile = HostileWaker::new();
        let (sender, friendly) = channel();
        let timers: Vec<_> = (0..10).map(|_| ThreadTimer::new()).collect();
        let now = timers[0].now();
        for timer in &timers {
            timer.wake_at(now + MILLI * 20, &hostile.waker());
        }
        hostile.panic_in(Some(call));
        let last = ThreadTimer::new();
        last.wake_at(now + MILLI * 21, &Arc::new(Sends(sender)).into());
        assert_eq!(friendly.recv(), Ok(()), "{call:?}");
        assert_eq!((hostile.wakes(), hostile.live()), (10, 0), "{call:?}");
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use flyball_sync::TokioTimer;
    use tokio::runtime::Builder;
    use tokio::time::sleep;

    use super::*;

    /// More alarms than tokio's timer driver wakes at a time.
    const ALARMS: usize = 100;

    #[test]
    fn a_panicking_waker_does_not_reach_the_driver_of_a_paused_runtime() {
        for call in CALLS {
            let hostile = HostileWaker::new();
            let (counter, friendly) = Counting::waker();
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let timers: Vec<_> = (0..ALARMS).map(|_| TokioTimer::current()).collect();
                for round in 1..=2 {
                    hostile.panic_in(None);
                    for (number, timer) in timers.iter().enumerate() {
                        let waker = if number % 2 == 0 { hostile.waker() } else { friendly.clone() };
                        timer.wake_at(timer.now() + SECOND, &waker);
                    }
                    hostile.panic_in(Some(call));
                    sleep(SECOND * 2).await;
                    assert_eq!(
                        (hostile.wakes(), counter.wakes()),
                        (ALARMS / 2 * round, ALARMS / 2 * round),
                        "{call:?}"
                    );
                    assert_eq!(hostile.live(), 0, "a timer that has fired keeps no waker");
                }
                // Another task of the runtime runs, too.
                tokio::spawn(sleep(SECOND)).await.unwrap();
            });
        }
    }

    #[test]
    fn a_panicking_waker_does_not_reach_the_driver_of_a_runtime_with_several_threads() {
        let hostile = HostileWaker::new();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        hostile.panic_in(Some(WakerCall::Wake));
        runtime.block_on(async {
            for round in 1..=5 {
                let (sender, friendly) = channel();
                let timers = [(); 2].map(|()| TokioTimer::current());
                timers[0].wake_at(timers[0].now() + MILLI, &hostile.waker());
                timers[1].wake_at(timers[1].now() + MILLI * 2, &Arc::new(Sends(sender)).into());
                tokio::spawn(sleep(MILLI * 5)).await.unwrap();
                tokio::task::spawn_blocking(move || friendly.recv().unwrap()).await.unwrap();
                assert_eq!(hostile.wakes(), round);
            }
        });
    }

    /// A disarmed alarm keeps its memory, but not its waker.
    #[test]
    fn a_disarmed_alarm_keeps_no_waker_and_can_be_set_again() {
        for call in CALLS {
            let hostile = HostileWaker::new();
            let (counter, friendly) = Counting::waker();
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let timer = TokioTimer::current();
                for round in 1..=3 {
                    hostile.panic_in(None);
                    timer.wake_at(timer.now() + SECOND, &hostile.waker());
                    hostile.panic_in(Some(call));
                    timer.disarm();
                    timer.disarm();
                    assert_eq!((hostile.wakes(), hostile.live()), (round - 1, 0), "{call:?}");
                    sleep(SECOND * 5).await;
                    assert_eq!(hostile.wakes(), round - 1, "{call:?}");
                    timer.wake_at(timer.now() + SECOND, &friendly);
                    sleep(SECOND * 2).await;
                    assert_eq!(counter.wakes(), round, "{call:?}");
                    // An alarm that is due at once wakes, and keeps no waker either.
                    hostile.panic_in(None);
                    timer.wake_at(timer.now(), &hostile.waker());
                    assert_eq!((hostile.wakes(), hostile.live()), (round, 0), "{call:?}");
                    sleep(SECOND * 5).await;
                    assert_eq!((hostile.wakes(), counter.wakes()), (round, round), "{call:?}");
                }
            });
        }
    }

    #[test]
    fn an_alarm_that_is_set_again_by_a_hostile_waker_still_fires() {
        for call in CALLS {
            let hostile = HostileWaker::new();
            let (counter, friendly) = Counting::waker();
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let timer = TokioTimer::current();
                let at = |second| Nanos::ZERO + SECOND * second;
                // A clone that panics leaves the earlier alarm as it was.
                timer.wake_at(at(2), &friendly);
                hostile.panic_in(Some(call));
                assert_eq!(
                    panics(|| timer.wake_at(at(1), &hostile.waker())),
                    call != WakerCall::Wake,
                    "{call:?}"
                );
                sleep(SECOND * 3).await;
                assert_eq!(
                    (counter.wakes(), hostile.wakes()),
                    if call == WakerCall::Clone { (1, 0) } else { (0, 1) }
                );

                // A replaced waker whose drop panics does not prevent the new alarm.
                hostile.panic_in(None);
                let before = counter.wakes();
                timer.wake_at(at(10), &hostile.waker());
                hostile.panic_in(Some(call));
                assert_eq!(panics(|| timer.wake_at(at(5), &friendly)), call == WakerCall::Drop, "{call:?}");
                sleep(SECOND * 10).await;
                assert_eq!(counter.wakes(), before + 1, "{call:?}");

                // The waker of a dropped timer is dropped quietly.
                hostile.panic_in(None);
                timer.wake_at(at(100), &hostile.waker());
                hostile.panic_in(Some(call));
                drop(timer);
                assert_eq!(hostile.live(), 0, "{call:?}");
                sleep(SECOND * 100).await;
            });
        }
    }
}
