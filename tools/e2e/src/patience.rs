//! Waits for another process. No other module of this crate reads a clock or sleeps.

use std::time::{Duration, Instant};

/// The delay between two attempts.
const STEP: Duration = Duration::from_millis(20);

/// Calls `attempt` until it returns `Some`, for at most `limit`.
///
/// Use this to wait for a state of a different process that sends no notification, for example until a server is ready or a process has ended.
#[expect(
    clippy::disallowed_methods,
    reason = "servers run in real time, and polling is the only way to observe them"
)]
pub fn eventually<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_until_there_is_something() {
        let mut left = 3;
        let found = eventually(Duration::from_secs(60), || {
            left -= 1;
            (left == 0).then_some("here")
        });
        assert_eq!(found, Some("here"));
    }

    #[test]
    fn asks_once_at_least_and_gives_up() {
        let mut asked = 0;
        let found: Option<()> = eventually(Duration::ZERO, || {
            asked += 1;
            None
        });
        assert_eq!((found, asked), (None, 1));
    }
}
