//! SHELL. A waker for a thread that blocks.
//!
//! | what | guarded by |
//! |---|---|
//! | whether it was woken | `woken` |

use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sleeps until it is woken, for at most so long; may wake up for nothing.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let mut woken = self.woken.lock();
        if !*woken {
            woken = match limit {
                Some(limit) => self.changed.wait_for(woken, limit),
                None => self.changed.wait(woken),
            };
        }
        *woken = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}
