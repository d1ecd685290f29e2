//! A `tracing` subscriber that records log lines.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

/// Records each event as a line, with the event's spans. Each instance can be the subscriber of only one thread.
#[derive(Clone)]
pub(crate) struct Lines {
    state: Arc<Mutex<State>>,
    filter: fn(&Metadata<'_>) -> bool,
}

impl Lines {
    /// Records the events that the filter accepts.
    pub(crate) fn of(filter: fn(&Metadata<'_>) -> bool) -> Self {
        static UNDECIDED: Once = Once::new();
        UNDECIDED.call_once(|| _ = set_global_default(UninterestedSubscriber));
        Self { state: Arc::default(), filter }
    }

    /// Records the events of this crate and of kube-runtime.
    pub(crate) fn of_flyball() -> Self {
        Self::of(|metadata| {
            ["flyball_kube", "kube_runtime"].iter().any(|of| metadata.target().starts_with(of))
        })
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.state.lock().lines.clone()
    }

    /// Returns the lines that contain this word.
    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        self.all().into_iter().filter(|line| line.contains(word)).collect()
    }
}

/// The default subscriber of all threads. It records nothing. Because it exists, `tracing` never caches that a call site is disabled for all
/// subscribers.
///
/// Tests run concurrently. A call site may be reached first by a thread without a subscriber, while a different thread is setting its own subscriber.
/// Without this default subscriber, `tracing` would then cache the call site as disabled, for both threads.
struct UninterestedSubscriber;

impl Subscriber for UninterestedSubscriber {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct State {
    spans: Vec<(String, &'static Metadata<'static>)>,
    within: Vec<usize>,
    lines: Vec<String>,
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
        (self.filter)(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let spans = &mut self.state.lock().spans;
        spans.push((line.0, span.metadata()));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let state = &mut *self.state.lock();
        let within = state.within.iter().map(|span| format!("{}: ", state.spans[*span].0));
        state.lines.push(within.collect::<String>() + &line.0);
    }

    fn enter(&self, id: &Id) {
        self.state.lock().within.push(id.into_u64() as usize - 1);
    }

    fn exit(&self, _: &Id) {
        self.state.lock().within.pop();
    }

    fn current_span(&self) -> Current {
        let state = self.state.lock();
        match state.within.last() {
            Some(&span) => Current::new(Id::from_u64(span as u64 + 1), state.spans[span].1),
            None => Current::none(),
        }
    }
}
