//! Tests of a user-defined backoff that replaces the backoff of the reflector.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use drivers::cache::fixture::{Object, SCHEMA, error, object};
use flyball_informer_cache::testing::{ScriptedSource, SourceRequest};
use flyball_informer_cache::{Informer, Page, RetryBackoff, SourceErrorKind, Version, WatchEvent};
use flyball_sync::{Clock, ManualClock, Nanos};
use parking_lot::Mutex;
use testkit::wakers::poll_once;

const SECOND: Duration = Duration::from_secs(1);

/// A backoff that returns these waits in order, panics when no wait is left, and records its calls (consecutive calls of `succeeded` once).
struct Scripted {
    waits: VecDeque<Duration>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl RetryBackoff for Scripted {
    fn failed(&mut self) -> Duration {
        self.calls.lock().push("failed");
        self.waits.pop_front().expect("a bug in the backoff")
    }

    fn succeeded(&mut self) {
        if self.calls.lock().last() != Some(&"succeeded") {
            self.calls.lock().push("succeeded");
        }
    }
}

struct World {
    clock: ManualClock,
    source: ScriptedSource<Object>,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    retries: Arc<Mutex<Vec<Option<Nanos>>>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl World {
    fn waiting(waits: &[Duration]) -> Self {
        let (clock, source) = (ManualClock::new(), ScriptedSource::new());
        let (retries, calls) = (Arc::<Mutex<Vec<_>>>::default(), Arc::default());
        let received = retries.clone();
        let (_, prepared) = Informer::builder(SCHEMA, source.clone())
            .on_error(move |failure| received.lock().push(failure.retry_at))
            .timer(clock.timer())
            .prepare()
            .unwrap();
        let backoff = Scripted { waits: waits.iter().copied().collect(), calls: Arc::clone(&calls) };
        let run = Box::pin(prepared.with_backoff(backoff).run());
        Self { clock, source, run, retries, calls }
    }

    fn settle(&mut self) {
        for _ in 0..10 {
            assert!(poll_once(self.run.as_mut()).is_pending());
        }
    }

    /// A failure is reported together with the instant of its retry. Advances the clock to this instant, and returns how long the wait was and which
    /// request the retry sent.
    fn retry(&mut self) -> (Duration, SourceRequest) {
        self.settle();
        let failed_at = self.clock.now();
        drop(self.source.requests());
        let retry_at = self.retries.lock().pop().unwrap().expect("the failure announced a retry");
        self.clock.advance(retry_at.since(failed_at).saturating_sub(Duration::from_nanos(1)));
        self.settle();
        assert_eq!(self.source.requests(), [], "a request was sent before the wait was over");
        self.clock.advance(Duration::from_nanos(1));
        self.settle();
        let mut asked = self.source.requests();
        assert_eq!(asked.len(), 1);
        (retry_at.since(failed_at), asked.remove(0))
    }

    fn wait(&mut self) -> Duration {
        self.retry().0
    }
}

fn listed(source: &ScriptedSource<Object>) {
    source.answer_list(Ok(Page { items: vec![object(1, 1)], version: Version::new(5), continuation: None }));
}

#[test]
fn each_failure_waits_exactly_as_long_as_the_backoff_says() {
    let mut world = World::waiting(&[SECOND * 3, SECOND * 500, SECOND]);
    world.source.answer_list(Err(error(SourceErrorKind::Other)));
    assert_eq!(world.wait(), SECOND * 3);
    world.source.answer_list(Err(error(SourceErrorKind::Other)));
    assert_eq!(world.wait(), SECOND * 500, "a wait longer than the request timeout was cut short");
    listed(&world.source);
    world.source.answer_watch(Err(error(SourceErrorKind::ConnectionRefused)));
    let (wait, next) = world.retry();
    assert!(wait == SECOND && matches!(next, SourceRequest::Watch(_)), "{wait:?} {next:?}");
    assert_eq!(*world.calls.lock(), ["failed", "failed", "succeeded", "failed"]);
    // A watch that was opened does not count as a success, because it may end immediately. Its first event counts.
    world.source.answer_watch(Ok(()));
    world.settle();
    assert_eq!(world.calls.lock().len(), 4);
    world.source.send(WatchEvent::Modified(object(1, 6)));
    world.settle();
    assert_eq!(world.calls.lock().len(), 5);
}

#[test]
fn a_source_that_asks_for_more_time_has_it() {
    let mut world = World::waiting(&[SECOND, SECOND * 90]);
    for expected in [60, 90] {
        let retry_after = Some(SECOND * 60);
        world.source.answer_list(Err(error(SourceErrorKind::TooManyRequests { retry_after })));
        assert_eq!(world.wait(), SECOND * expected);
    }
}

#[test]
fn a_backoff_that_panics_leaves_the_wait_of_the_configuration() {
    let mut world = World::waiting(&[]);
    world.source.answer_list(Err(error(SourceErrorKind::Other)));
    let wait = world.wait();
    assert!((Duration::from_millis(800)..=Duration::from_millis(1_600)).contains(&wait), "{wait:?}");
}
