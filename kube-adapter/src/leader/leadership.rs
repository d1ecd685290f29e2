//! SHELL. That somebody leads: one term, as its work and its watchers see it.
//!
//! | guarded by | |
//! |---|---|
//! | until when the term lasts, and whether it is over | a `watch` channel: written by the election, and by whoever finds that the time has passed |
//!
//! Whether the time has passed, and whether a renewal is in time, is decided under that one lock. So a term that somebody was told is over is not
//! prolonged, and no part of a work goes on while another has ended.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// That this candidate leads, for the work that it does as a leader. Clones are of the same term.
#[derive(Clone)]
pub struct Leadership {
    term: Arc<watch::Sender<Term>>,
}

#[derive(Clone, Copy)]
struct Term {
    until: Instant,
    lost: bool,
    /// The election was told to stop.
    stop: bool,
}

// === impl Leadership ===

impl Leadership {
    pub(super) fn new(until: Instant) -> Self {
        Self { term: Arc::new(watch::Sender::new(Term { until, lost: false, stop: false })) }
    }

    /// Done when the work has to end: the lease was lost, or could not be renewed in time, or the election was told to
    /// [stop](super::Election::run_until). The work has then the [wind-down](super::Timing::wind_down) to end in order, and is dropped after it; after a
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
                if term.stop || !this.is_leading() {
                    return;
                }
                tokio::select! {
                    () = sleep_until(term.until) => {}
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
            let passed = !term.lost && term.until <= now;
            term.lost |= passed;
            passed
        });
        !self.term.borrow().lost
    }

    /// Says whether it was in time.
    pub(super) fn prolong(&self, until: Instant) -> bool {
        let leads = self.is_leading();
        self.term.send_if_modified(|term| {
            let later = !term.lost && term.until != until;
            if later {
                term.until = until;
            }
            later
        });
        leads && self.is_leading()
    }

    pub(super) fn stop(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.stop, true));
    }

    pub(super) fn lose(&self) {
        self.term.send_if_modified(|term| !std::mem::replace(&mut term.lost, true));
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = *self.term.borrow();
        f.debug_struct("Leadership")
            .field("lost", &term.lost)
            .field("stop", &term.stop)
            .finish_non_exhaustive()
    }
}
