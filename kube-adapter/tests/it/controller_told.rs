//! What a controller says of its reconciles to `tracing`.

use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Controller;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Instrument, Metadata, Subscriber};
use tracing_core::span::Current;

use crate::world::{Refused, World, during, in_turn, map};

const SECOND: Duration = Duration::from_secs(1);

/// Writes down what is told, each line with the spans that it is told in. For one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<State>>);

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
        metadata.target().starts_with("flyball_kube") || metadata.target() == module_path!()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let spans = &mut self.0.lock().spans;
        spans.push((line.0, span.metadata()));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let state = &mut *self.0.lock();
        let within = state.within.iter().map(|span| format!("{}: ", state.spans[*span].0));
        state.lines.push(within.collect::<String>() + &line.0);
    }

    fn enter(&self, id: &Id) {
        self.0.lock().within.push(id.into_u64() as usize - 1);
    }

    fn exit(&self, _: &Id) {
        self.0.lock().within.pop();
    }

    fn current_span(&self) -> Current {
        let state = self.0.lock();
        match state.within.last() {
            Some(&span) => Current::new(Id::from_u64(span as u64 + 1), state.spans[span].1),
            None => Current::none(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_in_a_span_and_what_has_no_result_is_logged() {
    let lines = Lines::default();
    let _default = set_default(lines.clone());
    let program = async {
        let world = World::of(["works", "panics", "hangs"].map(|name| map(&format!("default/{name}"))));
        let config = in_turn().backoff(SECOND * 100..=SECOND * 100).reconcile_timeout(SECOND);
        let mut reconciles = Controller::over(&world.informer).with_config(config).run(
            async |map: Arc<ConfigMap>, _: Arc<()>| {
                tracing::info!("called");
                match map.metadata.name.as_deref() {
                    Some("panics") => panic!("a bug in the reconciler"),
                    Some("hangs") => sleep(SECOND * 1000).await,
                    _ => {}
                }
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            Arc::new(()),
        );
        assert_eq!(during(&mut reconciles, SECOND * 20).await.len(), 1);
    };
    program.instrument(tracing::info_span!("program")).await;
    let mut told = lines.0.lock().lines.clone();
    told.sort();
    let called = |name: &str| {
        format!("program: reconciling object object.ref=ConfigMap.v1./{name}.default: INFO called")
    };
    let expected = [
        "program: ERROR reconciler panicked kind=\"ConfigMap\" object=default/panics panic=\"a bug in the reconciler\"",
        "program: ERROR reconciler was not done in time kind=\"ConfigMap\" object=default/hangs limit=1s",
    ];
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.extend(["hangs", "panics", "works"].map(called));
    assert_eq!(told, expected);
}
