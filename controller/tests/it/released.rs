//! An ended run keeps nothing of the user, however it has ended, although the informer, the queue, handles, contexts and the health still exist.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use flyball_controller::{
    Action, BatchConfig, Context, Controller, ControllerConfig, ControllerMetrics, FailureClass, WatchOptions,
};
use flyball_informer_cache::Informer;
use flyball_ratelimit::Exponential;
use flyball_sync::TokioTimer;
use flyball_workqueue::Fifo;
use tokio::time::sleep;

use crate::support::{HistorySource, Keys, Log, SECOND, Thing, panic_quietly, queue, run_until_pending};

/// Metrics that hold a token.
struct Sink {
    _token: Arc<()>,
}

impl ControllerMetrics for Sink {}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Unpolled,
    PolledOnce,
    Aborted,
    ShutDown,
    Drained,
    ShutDownInStandby,
    InvalidConfig,
    StartFailed,
    StartTimeout,
    CacheEnded,
    Idle,
    SignalPanics,
}

const ENDS: [End; 12] = [
    End::Unpolled,
    End::PolledOnce,
    End::Aborted,
    End::ShutDown,
    End::Drained,
    End::ShutDownInStandby,
    End::InvalidConfig,
    End::StartFailed,
    End::StartTimeout,
    End::CacheEnded,
    End::Idle,
    End::SignalPanics,
];

/// Builds a controller, each function of which holds a token.
fn built(
    queue: &Keys,
    things: &Informer<u32, Thing>,
    token: &Arc<()>,
    end: End,
) -> Controller<u32, Fifo, Exponential<u32>, TokioTimer> {
    let [a, b, c, d, e, f, g, h, i, j, k] = [(); 11].map(|()| token.clone());
    let config = ControllerConfig {
        workers: if end == End::InvalidConfig { 0.into() } else { (1..=3).into() },
        stop_when_idle: end == End::Idle,
        start_timeout: if end == End::StartTimeout { SECOND } else { Duration::MAX },
        drain_on_shutdown: end == End::Drained,
        ..ControllerConfig::default()
    };
    let controller = Controller::new(queue.clone())
        .watches_with(
            things,
            move |change| {
                let _ = &a;
                if *change.key() == 3 {
                    panic_quietly("mapper")
                }
                *change.key()
            },
            WatchOptions::new()
                .filter(move |_| {
                    let _ = &k;
                    true
                })
                .resync_every(SECOND),
        )
        .with_config(config)
        .metrics(Sink { _token: b })
        .on_give_up(move |_, _| {
            let _ = &c;
        })
        .classify(move |_| {
            let _ = &d;
            FailureClass::Transient
        })
        .retry_after_at_least(move |_, _| {
            let _ = &e;
            None
        })
        .filter_keys(move |_| {
            let _ = &f;
            true
        })
        .finally(move |_, _, _| {
            let token = g.clone();
            async move {
                let _ = &token;
                Ok::<_, String>(())
            }
        })
        .start_when(async move {
            let _ = &h;
            match end {
                End::StartFailed => Err("no"),
                End::StartTimeout => pending().await,
                _ => Ok(()),
            }
        })
        .standby_until(async move {
            let _ = &i;
            if end == End::ShutDownInStandby {
                pending().await
            }
        });
    controller.graceful_shutdown_on(async move {
        let _ = &j;
        match end {
            End::ShutDown | End::Drained | End::ShutDownInStandby => sleep(3 * SECOND).await,
            End::SignalPanics => {
                sleep(3 * SECOND).await;
                panic_quietly("stop")
            }
            _ => pending().await,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_ended_run_keeps_no_function_of_the_user() {
    for batches in [false, true] {
        for end in ENDS {
            let world = HistorySource::new();
            (0..5).for_each(|key| _ = world.put(key, 0));
            let things = world.informer();
            things.synced().await.unwrap();
            let (queue, token, contexts) = (queue(), Arc::new(()), Log::<Context>::new());
            let controller = built(&queue, &things, &token, end);
            assert_eq!(Arc::strong_count(&token), 12, "each function holds the token");
            let (handle, health) = (controller.handle(), controller.health());
            let id = {
                let token = token.clone();
                handle
                    .add_watch(&things, move |change| {
                        let _ = &token;
                        10 + change.key()
                    })
                    .unwrap()
            };
            let (own, kept) = (token.clone(), contexts.clone());
            let one = move |key: u32, cx: Context| {
                let token = own.clone();
                kept.note(cx);
                async move {
                    let _ = &token;
                    if key == 2 {
                        sleep(1000 * SECOND).await
                    }
                    if key == 1 && end != End::Idle { Err("no") } else { Ok(Action::await_change()) }
                }
            };
            let run: Pin<Box<dyn Future<Output = _> + Send>> = match batches {
                false => Box::pin(controller.run(one)),
                true => {
                    let one = Arc::new(one);
                    let group = token.clone();
                    Box::pin(controller.run_batches(
                        BatchConfig::new(2).max_wait(SECOND).group_by(move |key| {
                            let _ = &group;
                            key % 2
                        }),
                        move |keys: Vec<u32>, cx| {
                            let one = one.clone();
                            async move {
                                let mut all = Vec::new();
                                for key in keys {
                                    all.push(one(key, cx.clone()).await)
                                }
                                Ok::<_, &str>(all)
                            }
                        },
                    ))
                }
            };
            match end {
                End::Unpolled => drop(run),
                End::PolledOnce => {
                    let mut run = run;
                    let _ = run.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()));
                }
                End::Aborted => {
                    let task = tokio::spawn(run);
                    sleep(2 * SECOND).await;
                    task.abort();
                    let _ = task.await;
                }
                End::CacheEnded | End::Idle => {
                    let task = tokio::spawn(run);
                    sleep(2 * SECOND).await;
                    things.shut_down();
                    let ended = task.await.unwrap();
                    assert_eq!(ended.is_ok(), end == End::Idle, "{end:?}");
                }
                _ => {
                    let ended = tokio::spawn(run).await;
                    assert_eq!(ended.is_err(), end == End::SignalPanics, "{end:?}");
                }
            }
            run_until_pending().await;
            assert_eq!(Arc::strong_count(&token), 1, "{end:?}, batches: {batches}");
            assert!(
                health.live(SECOND).is_err() && handle.add_watch(&things, |change| *change.key()).is_err()
            );
            assert!(!handle.remove_watch(&id));
            assert!(contexts.take().iter().all(Context::is_cancelled));
            queue.check().unwrap();
            if !queue.is_shutting_down() {
                assert_eq!(queue.stats().leased, 0, "{end:?}");
            }
        }
    }
}
