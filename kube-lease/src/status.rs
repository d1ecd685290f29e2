//! SHELL. How an election stands, for who asks from outside: probes, metrics, logs.
//!
//! | guarded by | |
//! |---|---|
//! | who leads, the term, the last error | a `watch` channel: written by the election alone, read by anybody |

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::leadership::Leadership;

/// How an election stands. See [`Election::standing`](crate::Election::standing). A clone costs a reference count.
#[derive(Clone)]
pub struct Standing {
    pub(crate) view: Arc<watch::Sender<View>>,
}

#[derive(Default)]
pub(crate) struct View {
    pub(crate) leader: Option<Arc<str>>,
    pub(crate) term: Option<Leadership>,
    /// When the last renewal was sent that has succeeded.
    pub(crate) renewed: Option<Instant>,
    /// From when on others may lead, while the work of a term goes on.
    pub(crate) others_from: Option<Instant>,
    pub(crate) terms: u64,
    pub(crate) error: Option<Arc<str>>,
}

// === impl Standing ===

impl Standing {
    pub(crate) fn new() -> Self {
        Self { view: Arc::default() }
    }

    /// Whether this candidate leads at this moment, by the clock.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.view.borrow().term.as_ref().is_some_and(Leadership::is_leading)
    }

    /// Who leads, as far as was seen last; `None` if nobody was seen, or the lease was given away.
    #[must_use]
    pub fn leader(&self) -> Option<Arc<str>> {
        self.view.borrow().leader.clone()
    }

    /// How often this candidate has come to lead.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.view.borrow().terms
    }

    /// How long ago the last renewal was sent that has succeeded.
    #[must_use]
    pub fn renewed(&self) -> Option<Duration> {
        self.view.borrow().renewed.map(|at| at.elapsed())
    }

    /// Why the last request has failed; `None` once another has succeeded.
    #[must_use]
    pub fn error(&self) -> Option<Arc<str>> {
        self.view.borrow().error.clone()
    }

    /// Whether there is hope: fails if the work of a leader still goes on when others may lead, for longer than `tolerated`. Its task is held up then, and only
    /// the end of the process helps: for a liveness probe, as client-go's `HealthzAdaptor`.
    ///
    /// # Errors
    /// [`Overstays`], since when.
    pub fn live(&self, tolerated: Duration) -> Result<(), Overstays> {
        match self.view.borrow().others_from.map(|at| at.elapsed()) {
            Some(since) if since > tolerated => Err(Overstays(since)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("leads", &self.is_leader())
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}

/// The work of a leader goes on though others may lead: for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overstays(pub Duration);

impl fmt::Display for Overstays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the work of a leader goes on, though others may lead since {:?}", self.0)
    }
}

impl Error for Overstays {}
