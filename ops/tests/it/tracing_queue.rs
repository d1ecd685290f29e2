//! `TracingQueue` with a subscriber that stores events as text.

use std::fmt::{Debug, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flyball_ops::TracingQueue;
use flyball_ratelimit::Exponential;
use flyball_sync::ManualClock;
use flyball_workqueue::Queue;
use testkit::wakers::poll_once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

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
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn every_event_has_its_level_and_fields() {
    let (lines, clock) = (Lines::default(), ManualClock::new());
    with_default(lines.clone(), || {
        let queue = Queue::builder()
            .timer(clock.timer())
            .limiter(Exponential::new(Duration::from_secs(2)..=Duration::from_secs(8)))
            .capacity(2)
            .give_up_after(std::num::NonZeroU32::new(2).unwrap(), |_, _| {})
            .metrics(TracingQueue::new("pods"))
            .build();
        _ = queue.add_many(["a", "b", "c"]);
        clock.advance(Duration::from_secs(1));
        queue.try_get().unwrap().succeed();
        let lease = queue.try_get().unwrap();
        clock.advance(Duration::from_secs(3));
        assert!(poll_once(pin!(queue.next_overdue(Duration::from_secs(3)))).is_ready());
        drop(lease);
        clock.advance(Duration::from_secs(2));
        queue.try_get().unwrap().retry();
    });
    let expected = [
        "WARN flyball_workqueue an add was refused queue=\"pods\" reason=the queue is full",
        "TRACE flyball_workqueue a key was handed out queue=\"pods\" queued_seconds=1.0 delayed=false",
        "TRACE flyball_workqueue a lease ended queue=\"pods\" outcome=\"succeeded\" worked_seconds=0.0",
        "TRACE flyball_workqueue a key was handed out queue=\"pods\" queued_seconds=1.0 delayed=false",
        "WARN flyball_workqueue a lease is overdue queue=\"pods\" age_seconds=3.0",
        "DEBUG flyball_workqueue a lease failed queue=\"pods\" dropped=true worked_seconds=3.0",
        "DEBUG flyball_workqueue a failure was counted queue=\"pods\"",
        "TRACE flyball_workqueue a key was handed out queue=\"pods\" queued_seconds=0.0 delayed=true",
        "DEBUG flyball_workqueue a lease failed queue=\"pods\" dropped=false worked_seconds=0.0",
        "DEBUG flyball_workqueue a failure was counted queue=\"pods\"",
        "WARN flyball_workqueue a key was given up queue=\"pods\" failures=2",
    ];
    assert_eq!(*lines.0.lock().unwrap(), expected);
}
