//! SHELL. How many reconciles of a controller are in flight, and a warning when they are many.
//!
//! | guarded by | |
//! |---|---|
//! | `state` | the number, and when the last warning was logged. It is logged after unlocking |

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use flyball_sync::locks::Mutex;

/// This many reconciles in flight are worth a warning.
const MANY: usize = 256;
/// At most one warning in this time.
const WARNS_EVERY: Duration = Duration::from_secs(60);

/// The reconciles of one controller.
pub(crate) struct InFlight {
    kind: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    warned: Option<Instant>,
}

impl InFlight {
    /// For controllers of this kind.
    pub(crate) fn new(kind: String) -> Arc<Self> {
        Arc::new(Self { kind, state: Mutex::default() })
    }

    /// Counts a reconcile until the guard is dropped. `oldest` is called for a warning alone.
    pub(crate) fn begin(self: &Arc<Self>, oldest: impl FnOnce() -> Option<Duration>) -> Running {
        let mut state = self.state.lock();
        state.running += 1;
        let running = state.running;
        if running >= MANY {
            let now = Instant::now();
            if state.warned.is_none_or(|warned| now.duration_since(warned) >= WARNS_EVERY) {
                state.warned = Some(now);
                drop(state);
                tracing::warn!(
                    target: super::TARGET,
                    kind = self.kind,
                    running,
                    oldest = ?oldest().unwrap_or_default(),
                    "many reconciles are in flight; Config::concurrency bounds them"
                );
            }
        }
        Running(self.clone())
    }
}

/// A reconcile in flight.
pub(crate) struct Running(Arc<InFlight>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}
