//! SHELL. The number of reconciles of a controller that are in flight, and a warning when there are many.
//!
//! | guarded by | |
//! |---|---|
//! | `state` | the number, and the time of the last warning. Warnings are logged after unlocking |

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use flyball_sync::locks::Mutex;

/// If at least this many reconciles are in flight, a warning is logged.
const MANY: usize = 256;
/// The minimum time between two warnings.
const WARNS_EVERY: Duration = Duration::from_secs(60);

/// The number of reconciles in flight of one controller.
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
    /// Creates the counter of a controller of this kind.
    pub(crate) fn new(kind: String) -> Arc<Self> {
        Arc::new(Self { kind, state: Mutex::default() })
    }

    /// Counts a reconcile as in flight until the returned guard is dropped. `oldest` is called only if a warning is logged.
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
