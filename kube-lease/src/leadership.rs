//! SHELL. That somebody leads: one term, as its work and its watchers see it.
//!
//! | guarded by | |
//! |---|---|
//! | whether it has begun, until when it lasts, and whether it is over | a `watch` channel: written by the election, and by whoever finds that the time has passed |
//!
//! Whether the time has passed, and whether a renewal is in time, is decided under that one lock. So a term that somebody was told is over is not
//! prolonged, and no part of a work goes on while another has ended.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The term of a candidate as leader, for the work that it does. Clones are of the same term.
///
/// For the work of [`run_standby`](crate::Election::run_standby) it has not begun yet. A controller of flyball-kube keeps to it
/// by `Controller::with_leadership`.
#[derive(Clone)]
pub struct Leadership {
    term: Arc<watch::Sender<Term>>,
}

#[derive(Clone, Copy)]
struct Term {
    /// None before it was elected.
    until: Option<Instant>,
    lost: bool,
    /// The election was told to stop.
    stop: bool,
}

// === impl Leadership ===

impl Leadership {
    /// A term that has not begun.
    pub(crate) fn new() -> Self {
        Self { term: Arc::new(watch::Sender::new(Term { until: None, lost: false, stop: false })) }
    }

    /// Done when this candidate leads; at once for the work of [`run`](crate::Election::run) and [`run_until`](crate::Election::run_until). Pending for ever if it
    /// ends before, or if the leadership is over already.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub fn elected(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let this = self.clone();
        async move {
            let mut changes = this.term.subscribe();
            while !this.is_leading() {
                // It cannot fail: the sender is ours.
                let _ = changes.changed().await;
            }
        }
    }

    /// Done when the work has to end, also before it has led: the lease was lost, or could not be renewed in time, or the election was told to
    /// [stop](crate::Election::run_until). The work has then the [wind-down](crate::Timing::wind_down) to end in order, and is dropped after it; after a
    /// stop it has as long as it leads.
    ///
    /// For a controller's `graceful_shutdown_on` or `shutdown_on`. It goes by its own timer: whoever awaits it in another task is told in time also where the
    /// task of the election is held up.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        let this = self.clone();
        async move {
            let mut changes = this.term.subscribe();
            loop {
                let term = *changes.borrow_and_update();
                if term.stop || term.lost || term.until.is_some() && !this.is_leading() {
                    return;
                }
                let passed = async {
                    match term.until {
                        Some(until) => sleep_until(until).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    () = passed => {}
                    _ = changes.changed() => {}
                }
            }
        }
    }

    /// Whether it leads at this moment, by the clock: for what must not be done by two. What is sent to a server now may arrive later.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        let now = Instant::now();
        self.term.send_if_modified(|term| {
            let passed = !term.lost && term.until.is_some_and(|until| until <= now);
            term.lost |= passed;
            passed
        });
        let term = self.term.borrow();
        term.until.is_some() && !term.lost
    }

    /// Whether it leads, or has led.
    pub(crate) fn has_begun(&self) -> bool {
        self.term.borrow().until.is_some()
    }

    /// Begins the term, or prolongs it; says whether it was in time.
    pub(crate) fn prolong(&self, until: Instant) -> bool {
        let in_time = self.is_leading() || !self.has_begun();
        self.term.send_if_modified(|term| {
            let later = !term.lost && term.until != Some(until);
            if later {
                term.until = Some(until);
            }
            later
        });
        in_time && self.is_leading()
    }

    pub(crate) fn stop(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.stop, true));
    }

    pub(crate) fn lose(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.lost, true));
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = *self.term.borrow();
        f.debug_struct("Leadership")
            .field("begun", &term.until.is_some())
            .field("lost", &term.lost)
            .field("stop", &term.stop)
            .finish_non_exhaustive()
    }
}
