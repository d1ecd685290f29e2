//! Each reconcile is a `tracing` span, which a subscriber logs.

use std::fmt::{Debug, Write};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flyball_controller::{Action, BatchConfig, Controller, ControllerConfig};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Metadata, Subscriber};

use crate::support::{Log, SECOND, panic_quietly, queue};

/// A subscriber that numbers the spans, and logs each span, its recorded values and its events.
#[derive(Clone)]
struct Lines {
    log: Log<String>,
    spans: Arc<AtomicU64>,
    within: Arc<AtomicU64>,
}

impl Lines {
    fn new() -> Self {
        Self { log: Log::new(), spans: Arc::default(), within: Arc::default() }
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "flyball_controller" || metadata.target() == module_path!()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.spans.fetch_add(1, Ordering::SeqCst) + 1;
        let mut line = Line(format!("{id}: {} {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut line);
        self.log.note(line.0);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut line = Line(format!("{}:", id.into_u64()));
        values.record(&mut line);
        self.log.note(line.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("in {}:", self.within.load(Ordering::SeqCst)));
        event.record(&mut line);
        self.log.note(line.0);
    }

    fn enter(&self, id: &Id) {
        self.within.store(id.into_u64(), Ordering::SeqCst);
    }

    fn exit(&self, _: &Id) {
        self.within.store(0, Ordering::SeqCst);
    }
}

/// Logs an event when it is dropped.
struct LogOnDrop;

impl Drop for LogOnDrop {
    fn drop(&mut self) {
        tracing::info!("dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_a_span_from_its_call_to_its_end() {
    let (lines, queue) = (Lines::new(), queue());
    let _default = set_default(lines.clone());
    (1..=3).for_each(|key| _ = queue.add(key));
    let controller = Controller::new(queue)
        .with_tracing("pods")
        .with_config(ControllerConfig {
            workers: 2.into(),
            reconcile_timeout: Some(SECOND),
            ..ControllerConfig::default()
        })
        .finally(|_, _, _| async {
            tracing::info!("finally");
            Ok::<_, String>(())
        })
        // The shutdown begins before the second key is retried.
        .graceful_shutdown_on(sleep(SECOND + SECOND / 20));
    controller
        .run(|key, _| {
            tracing::info!(key, "called");
            async move {
                let _last = (key != 1).then(|| LogOnDrop);
                sleep(SECOND / 10).await;
                tracing::info!("polled again");
                match key {
                    1 => Ok(Action::await_change()),
                    2 => Err("no luck"),
                    _ => pending().await,
                }
            }
        })
        .await
        .unwrap();
    tracing::info!("outside");
    let mut of = vec![Vec::new(); 4];
    for line in lines.log.take() {
        let number = line.find(|c: char| c.is_ascii_digit()).expect("each line has the number of a span");
        let (_, rest) = line.split_at(number);
        of[rest[..1].parse::<usize>().unwrap()].push(rest[2..].trim_start().to_owned());
    }
    let span = |key: u32| format!("INFO reconcile controller=\"pods\" key={key}");
    let called = |key: u32| format!("called key={key}");
    let expected = |key: u32, rest: &[&str]| {
        let mut all = vec![span(key), called(key), "polled again".to_owned()];
        all.extend(rest.iter().map(|line| (*line).to_owned()));
        all
    };
    assert_eq!(of[0], ["outside"]);
    assert_eq!(of[1], expected(1, &["finally", "outcome=\"success\""]));
    assert_eq!(of[2], expected(2, &["dropped", "finally", "outcome=\"error\""]));
    assert_eq!(of[3], expected(3, &["dropped", "finally", "outcome=\"timeout\""]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_a_span_and_each_key_has_its_own_after_it() {
    let (lines, queue) = (Lines::new(), queue());
    let _default = set_default(lines.clone());
    (1..=2).for_each(|key| _ = queue.add(key));
    queue.shut_down();
    let controller = Controller::new(queue).with_tracing("pods");
    controller
        .run_batches(BatchConfig::new(2), |_, _| async {
            tracing::info!("working");
            Ok(vec![Ok(Action::await_change()), Err("no luck")])
        })
        .await
        .unwrap();
    let expected = [
        "1: INFO reconcile_batch controller=\"pods\" keys=2",
        "in 1: working",
        "2: INFO reconcile controller=\"pods\" key=1",
        "2: outcome=\"success\"",
        "3: INFO reconcile controller=\"pods\" key=2",
        "3: outcome=\"error\"",
    ];
    assert_eq!(lines.log.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn no_span_without_with_tracing() {
    let (lines, queue) = (Lines::new(), queue());
    let _default = set_default(lines.clone());
    queue.add(1).unwrap();
    queue.shut_down();
    let run = Controller::new(queue).run(|_, _| async { Ok::<_, String>(Action::await_change()) });
    run.await.unwrap();
    assert_eq!(lines.log.take(), [] as [String; 0]);
}

/// A panic of the subscriber counts as a panic of the reconcile.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_ends_no_worker() {
    struct PanickingSubscriber;
    impl Subscriber for PanickingSubscriber {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "flyball_controller"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {
            panic_quietly("record");
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {}

        fn enter(&self, _: &Id) {
            panic_quietly("enter");
        }

        fn exit(&self, _: &Id) {}

        fn try_close(&self, _: Id) -> bool {
            panic_quietly("close");
        }
    }
    let queue = queue();
    (1..=2).for_each(|key| _ = queue.add(key));
    queue.shut_down();
    let _default = set_default(PanickingSubscriber);
    let controller = Controller::new(queue).with_tracing("pods");
    let report = controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }).await.unwrap();
    assert_eq!((report.reconciles, report.panics, report.callback_panics), (2, 2, 2));
}
