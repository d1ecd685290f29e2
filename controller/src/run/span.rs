//! EDGE. The `tracing` span of a reconcile, if the feature `tracing` is on and the controller enables spans.
//!
//! Cancel safety: no function here waits.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{ReconcileSpan, ReconcileSpans};
#[cfg(feature = "tracing")]
pub(crate) use on::{ReconcileSpan, ReconcileSpans};

#[cfg(feature = "tracing")]
mod on {
    use std::fmt::Debug;

    use tracing::field::Empty;
    use tracing::{Span, info_span};

    use crate::ReconcileOutcome;
    use flyball_sync::panics;

    const TARGET: &str = "flyball_controller";

    /// Creates spans, if tracing is enabled.
    pub(crate) struct ReconcileSpans<K>(Option<Tracing<K>>);

    struct Tracing<K> {
        controller: String,
        of: fn(&str, &K) -> Span,
    }

    impl<K> Default for ReconcileSpans<K> {
        fn default() -> Self {
            Self(None)
        }
    }

    impl<K: Debug> ReconcileSpans<K> {
        pub(crate) fn new(controller: String) -> Self {
            let of = |controller: &str, key: &K| info_span!(target: TARGET, "reconcile", controller, ?key, outcome = Empty);
            Self(Some(Tracing { controller, of }))
        }
    }

    impl<K> ReconcileSpans<K> {
        /// Returns the span of a reconcile. Formats the key, which calls user code.
        pub(crate) fn of(&self, key: &K) -> ReconcileSpan {
            let tracing = self.0.as_ref();
            ReconcileSpan(tracing.map_or_else(Span::none, |tracing| (tracing.of)(&tracing.controller, key)))
        }

        /// Returns the span of a batch with this many keys.
        pub(crate) fn of_batch(&self, keys: usize) -> ReconcileSpan {
            let of = |tracing: &Tracing<K>| {
                let controller = &*tracing.controller;
                info_span!(target: TARGET, "reconcile_batch", controller, keys)
            };
            ReconcileSpan(self.0.as_ref().map_or_else(Span::none, of))
        }
    }

    /// A span, which may be disabled.
    pub(crate) struct ReconcileSpan(Span);

    impl Default for ReconcileSpan {
        fn default() -> Self {
            Self(Span::none())
        }
    }

    /// Closing a span calls the subscriber, whose panic must not affect a worker.
    impl Drop for ReconcileSpan {
        fn drop(&mut self) {
            // The panic is ignored here, because the panic hook has already reported it.
            panics::caught(|| drop(std::mem::replace(&mut self.0, Span::none())));
        }
    }

    impl ReconcileSpan {
        /// Calls `user` within the span.
        pub(crate) fn scope<A>(&self, user: impl FnOnce() -> A) -> A {
            self.0.in_scope(user)
        }

        pub(crate) fn ended(&self, outcome: ReconcileOutcome) {
            self.0.record("outcome", outcome.label());
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::marker::PhantomData;

    use crate::ReconcileOutcome;

    /// Creates no spans.
    pub(crate) struct ReconcileSpans<K>(PhantomData<fn(K)>);

    impl<K> Default for ReconcileSpans<K> {
        fn default() -> Self {
            Self(PhantomData)
        }
    }

    #[expect(clippy::unused_self, reason = "it has the signature of the type with tracing")]
    impl<K> ReconcileSpans<K> {
        pub(crate) fn of(&self, _: &K) -> ReconcileSpan {
            ReconcileSpan
        }

        pub(crate) fn of_batch(&self, _: usize) -> ReconcileSpan {
            ReconcileSpan
        }
    }

    /// A span that does nothing.
    #[derive(Default)]
    pub(crate) struct ReconcileSpan;

    #[expect(clippy::unused_self, reason = "it has the signature of the type with tracing")]
    impl ReconcileSpan {
        pub(crate) fn scope<A>(&self, user: impl FnOnce() -> A) -> A {
            user()
        }

        pub(crate) fn ended(&self, _: ReconcileOutcome) {}
    }
}
