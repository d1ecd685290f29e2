//! Tests `ManualClock` and its timers, and `TokioTimer` on paused time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, Timer};
use testkit::wakers::{Counting, Panicking};

const SECOND: Duration = Duration::from_secs(1);

fn at(secs: u32) -> Nanos {
    Nanos::ZERO + SECOND * secs
}

/// Sends its name when it is woken.
struct Named(&'static str, Sender<&'static str>);

impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0).unwrap();
    }
}

#[test]
fn the_machines_clock_does_not_go_back() {
    let first = Monotonic.now();
    let readings: Vec<_> = (0..1_000).map(|_| Monotonic.now()).collect();
    assert!(readings.is_sorted() && readings[0] >= first);
}

#[test]
fn alarms_fire_when_due_earliest_first_and_once() {
    let clock = ManualClock::new();
    let (order, fired) = channel();
    let alarm = |secs, name| {
        let timer = clock.timer();
        timer.wake_at(at(secs), &Arc::new(Named(name, order.clone())).into());
        timer
    };
    let _timers = [alarm(3, "third"), alarm(1, "first"), alarm(9, "last"), alarm(2, "second")];
    assert_eq!(clock.next_alarm(), Some(at(1)));
    clock.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(fired.try_iter().next(), None, "a nanosecond early");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(fired.try_iter().collect::<Vec<_>>(), ["first"]);
    clock.set(at(5));
    assert_eq!(fired.try_iter().collect::<Vec<_>>(), ["second", "third"]);
    clock.set(at(1));
    clock.set(at(5));
    assert_eq!((fired.try_iter().count(), clock.next_alarm()), (0, Some(at(9))));
}

#[test]
fn a_timer_has_one_alarm_and_takes_it_along() {
    let clock = ManualClock::new();
    let (timer, other) = (clock.timer(), clock.timer());
    let (replaced, old) = Counting::waker();
    let (counter, new) = Counting::waker();
    timer.wake_at(at(1), &old);
    timer.wake_at(at(2), &new);
    other.wake_at(at(2), &new);
    assert_eq!(Arc::strong_count(&replaced), 2, "the waker of the replaced alarm was not dropped");
    clock.advance(SECOND);
    assert_eq!((replaced.wakes(), counter.wakes()), (0, 0));
    drop(other);
    clock.advance(SECOND);
    assert_eq!((replaced.wakes(), counter.wakes()), (0, 1));
}

#[test]
fn an_alarm_in_the_past_fires_at_once_and_one_at_never_does_not() {
    let clock = ManualClock::new();
    clock.advance(SECOND);
    let timer = clock.timer();
    let (counter, waker) = Counting::waker();
    timer.wake_at(at(0), &waker);
    timer.wake_at(at(1), &waker);
    assert_eq!(counter.wakes(), 2);
    timer.wake_at(Nanos::MAX, &waker);
    clock.advance(SECOND * 1_000_000);
    assert_eq!(counter.wakes(), 2);
    clock.set(Nanos::MAX);
    assert_eq!(counter.wakes(), 3);
}

/// A waker that sets the next alarm of its timer and moves the clock.
struct Sets {
    timer: OnceLock<ManualTimer>,
    clock: ManualClock,
    next: Waker,
}

impl Wake for Sets {
    fn wake(self: Arc<Self>) {
        self.timer.get().unwrap().wake_at(self.clock.now() + SECOND, &self.next);
        self.clock.advance(SECOND);
    }
}

#[test]
fn a_waker_may_set_an_alarm_and_move_the_clock() {
    let clock = ManualClock::new();
    let (counter, next) = Counting::waker();
    let sets = Arc::new(Sets { timer: clock.timer().into(), clock: clock.clone(), next });
    sets.timer.get().unwrap().wake_at(at(1), &sets.clone().into());
    clock.advance(SECOND);
    assert_eq!((clock.now(), counter.wakes()), (at(2), 1));
}

#[test]
fn a_panicking_waker_takes_no_other_alarm_with_it() {
    let clock = ManualClock::new();
    let (hostile, friendly) = (clock.timer(), clock.timer());
    let (counter, waker) = Counting::waker();
    hostile.wake_at(at(1), &Arc::new(Panicking).into());
    friendly.wake_at(at(1), &waker);
    assert!(catch_unwind(AssertUnwindSafe(|| clock.advance(SECOND))).is_err());
    assert_eq!((clock.now(), counter.wakes()), (at(1), 1));
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use std::future::poll_fn;
    use std::sync::mpsc::channel;
    use std::task::{Poll, Waker};
    use std::thread;

    use flyball_sync::TokioTimer;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::sleep;

    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn paused() -> Runtime {
        Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    /// Waits as the flyball crates do: reads the clock, and sets the alarm if the deadline has not passed.
    async fn reach(timer: &TokioTimer, deadline: Nanos) {
        poll_fn(|context| {
            if timer.now() >= deadline {
                return Poll::Ready(());
            }
            timer.wake_at(deadline, context.waker());
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn it_follows_the_paused_clock_of_its_runtime() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            assert_eq!(timer.now(), Nanos::ZERO);
            sleep(SECOND * 3_600).await;
            assert_eq!(timer.now(), at(3_600));
            reach(&timer, at(7_200)).await;
            assert!(timer.now() >= at(7_200) && timer.now() <= at(7_200) + MILLI);
        });
    }

    #[test]
    fn it_wakes_at_the_deadline_and_not_before() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            let (counter, waker) = Counting::waker();
            timer.wake_at(at(10), &waker);
            sleep(SECOND * 10 - MILLI).await;
            assert_eq!(counter.wakes(), 0);
            sleep(MILLI * 2).await;
            assert_eq!(counter.wakes(), 1);
            sleep(SECOND * 100).await;
            assert_eq!(counter.wakes(), 1, "the alarm fired twice");
        });
    }

    /// A runtime with a paused clock advances to the next alarm as soon as it parks. The thread wakes it in real time, when it has been parked for a
    /// while: nothing in the runtime can show that nothing happens.
    #[test]
    fn a_paused_clock_does_not_advance_to_a_disarmed_alarm() {
        let ((parks, parked), (wakers, polled)) = (channel(), channel::<Waker>());
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true).on_thread_park(move || _ = parks.send(()));
        let thread = thread::spawn(move || {
            let waker = polled.recv().unwrap();
            while parked.recv_timeout(MILLI * 20).is_ok() {}
            waker.wake();
        });
        builder.build().unwrap().block_on(async move {
            let timer = TokioTimer::current();
            timer.wake_at(at(3_600), &Counting::waker().1);
            timer.disarm();
            let mut waits = true;
            poll_fn(|context| {
                if !std::mem::take(&mut waits) {
                    return Poll::Ready(());
                }
                wakers.send(context.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            assert_eq!(timer.now(), Nanos::ZERO);
        });
        thread.join().unwrap();
    }

    #[test]
    fn the_past_is_woken_at_once() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            sleep(SECOND).await;
            let (counter, waker) = Counting::waker();
            timer.wake_at(at(0), &waker);
            sleep(MILLI).await;
            assert_eq!(counter.wakes(), 1);
            timer.wake_at(timer.now(), &waker);
            sleep(MILLI).await;
            assert_eq!(counter.wakes(), 2);
        });
    }

    #[test]
    fn a_new_alarm_replaces_the_old_one_and_its_waker() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            let (replaced, old) = Counting::waker();
            let (counter, new) = Counting::waker();
            for (first, second) in [(1, 5), (50, 20)] {
                let start = timer.now();
                timer.wake_at(start + SECOND * first, &old);
                timer.wake_at(start + SECOND * second, &new);
                assert_eq!(Arc::strong_count(&replaced), 2, "the old waker was not dropped");
                sleep(SECOND * 100).await;
            }
            assert_eq!((replaced.wakes(), counter.wakes()), (0, 2));
        });
    }

    #[test]
    fn a_dropped_timer_wakes_no_task() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            let (counter, waker) = Counting::waker();
            timer.wake_at(at(1), &waker);
            drop((timer, waker));
            assert_eq!(Arc::strong_count(&counter), 1, "the waker was not dropped");
            sleep(SECOND * 10).await;
            assert_eq!(counter.wakes(), 0);
        });
    }

    #[test]
    fn never_is_no_panic_and_a_far_deadline_is_reached() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            let (counter, waker) = Counting::waker();
            timer.wake_at(Nanos::MAX, &waker);
            let day = SECOND * 86_400;
            sleep(day * 364).await;
            assert_eq!(counter.wakes(), 0);
            sleep(day * 2).await;
            assert_eq!(
                counter.wakes(),
                1,
                "the timer wakes early, after a year, because tokio gets no longer sleep"
            );
            // The deadline is further away than the two years that tokio's timer wheel covers, so the timer wakes the task early, and `reach` sets
            // the alarm again each time.
            let years = day * 365 * 5;
            reach(&timer, Nanos::ZERO + years).await;
            assert!(timer.now() >= Nanos::ZERO + years);
        });
    }

    #[test]
    fn it_serves_threads_outside_its_runtime() {
        let runtime = paused();
        let timer = {
            let _inside = runtime.enter();
            TokioTimer::current()
        };
        let (counter, waker) = Counting::waker();
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(timer.now(), Nanos::ZERO, "the paused clock, not the machine's");
                timer.wake_at(at(60), &waker);
            });
        });
        runtime.block_on(async { sleep(SECOND * 59).await });
        assert_eq!(counter.wakes(), 0);
        runtime.block_on(async { sleep(SECOND * 2).await });
        assert_eq!((counter.wakes(), timer.now()), (1, at(61)));
    }

    #[test]
    fn a_task_that_has_used_up_its_budget_is_woken_on_time_and_not_early() {
        paused().block_on(async {
            let timer = TokioTimer::current();
            let (counter, waker) = Counting::waker();
            let armed = tokio::spawn(async move {
                while tokio::task::coop::has_budget_remaining() {
                    tokio::task::coop::consume_budget().await;
                }
                timer.wake_at(at(5), &waker);
                timer
            });
            let _timer = armed.await.unwrap();
            sleep(SECOND * 5 - MILLI).await;
            assert_eq!(counter.wakes(), 0, "early");
            sleep(MILLI * 2).await;
            assert_eq!(counter.wakes(), 1, "lost");
        });
    }

    /// A waker that sets the next alarm of the timer from inside `wake`.
    struct SetsAgain(Arc<OnceLock<TokioTimer>>, Nanos, Waker);

    impl Wake for SetsAgain {
        fn wake(self: Arc<Self>) {
            self.0.get().unwrap().wake_at(self.1, &self.2);
        }
    }

    #[test]
    fn a_waker_may_set_the_next_alarm_from_inside_the_call() {
        paused().block_on(async {
            let (counter, next) = Counting::waker();
            let timer = Arc::new(OnceLock::new());
            timer.set(TokioTimer::current()).unwrap();
            let again = Arc::new(SetsAgain(timer.clone(), at(20), next));
            sleep(SECOND).await;
            // This alarm is already due, so the waker is woken either inside this call or later by tokio. In both cases the waker sets an alarm for
            // 20 s, and nothing replaces that alarm.
            timer.get().unwrap().wake_at(at(0), &again.into());
            sleep(SECOND * 18).await;
            assert_eq!(counter.wakes(), 0);
            sleep(SECOND * 2).await;
            assert_eq!(counter.wakes(), 1);
        });
    }

    /// A waker that sets an alarm of the timer when it is dropped.
    struct SetsWhenDropped(Arc<OnceLock<TokioTimer>>, Waker);

    impl Wake for SetsWhenDropped {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for SetsWhenDropped {
        fn drop(&mut self) {
            self.0.get().unwrap().wake_at(at(20), &self.1);
        }
    }

    #[test]
    fn a_waker_may_set_an_alarm_when_it_is_dropped() {
        paused().block_on(async {
            let (counter, next) = Counting::waker();
            let timer = Arc::new(OnceLock::new());
            timer.set(TokioTimer::current()).unwrap();
            let replaced = Arc::new(SetsWhenDropped(timer.clone(), next.clone()));
            timer.get().unwrap().wake_at(at(5), &replaced.into());
            // Setting this alarm drops the old waker. The old waker's `drop` sets the alarm once more, for 20 s. That call is the last one, so its
            // alarm replaces the one for 10 s.
            timer.get().unwrap().wake_at(at(10), &next);
            sleep(SECOND * 19).await;
            assert_eq!(counter.wakes(), 0);
            sleep(SECOND * 2).await;
            assert_eq!(counter.wakes(), 1);
        });
    }

    #[test]
    fn outside_a_runtime_there_is_no_current_one() {
        let made = catch_unwind(TokioTimer::current);
        assert!(made.is_err());
    }
}
