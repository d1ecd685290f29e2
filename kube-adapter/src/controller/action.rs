//! PURE. The delay of kube's `Action`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use kube::runtime::controller::Action;

/// The shortest delay before a requested reconcile. kube-runtime's timer rounds a delay of zero up to one or two milliseconds. Programs rely on
/// this: without it, a reconcile that writes its object and requests a requeue after zero starts before the watch has reported the write.
const SHORTEST_REQUEUE: Duration = Duration::from_millis(2);

/// Returns the delay after which the next reconcile takes place: that of the action, but at least 2 ms; `None` if the action waits for a change.
///
/// # Errors
/// Like [`action_delay`].
pub(crate) fn requeue_delay(action: &Action) -> Result<Option<Duration>, UnknownAction> {
    Ok(action_delay(action)?.map(|delay| delay.max(SHORTEST_REQUEUE)))
}

/// Returns the delay after which the action requests another reconcile, or `None` if it waits for a change.
///
/// kube 5 has no getter for the delay, but the `Debug` text of `Action` contains the exact delay, and `Action` implements `PartialEq`. So this
/// function parses the text, builds an action from the parsed delay, and accepts the delay only if both actions are equal. If a version of kube has a
/// different text, this function returns an error, and never a wrong delay.
///
/// # Errors
/// Returns an [`UnknownAction`] with the text if the text cannot be parsed.
///
/// # Examples
/// ```
/// use kube::runtime::controller::Action;
/// use std::time::Duration;
///
/// let hourly = Duration::from_secs(3600);
/// assert_eq!(flyball_kube::action_delay(&Action::requeue(hourly))?, Some(hourly));
/// assert_eq!(flyball_kube::action_delay(&Action::await_change())?, None);
/// # Ok::<(), flyball_kube::UnknownAction>(())
/// ```
pub fn action_delay(action: &Action) -> Result<Option<Duration>, UnknownAction> {
    if *action == Action::await_change() {
        return Ok(None);
    }
    let shown = format!("{action:?}");
    match read(&shown).filter(|duration| Action::requeue(*duration) == *action) {
        Some(duration) => Ok(Some(duration)),
        None => Err(UnknownAction(shown)),
    }
}

/// The error for an action whose `Debug` text this version of flyball cannot parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAction(String);

impl fmt::Display for UnknownAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot parse the action: {}", self.0)
    }
}

impl Error for UnknownAction {}

/// Parses the duration in `Action { requeue_after: Some(1.5ms) }`.
fn read(shown: &str) -> Option<Duration> {
    let (_, rest) = shown.split_once("Some(")?;
    let (duration, _) = rest.split_once(')')?;
    read_duration(duration)
}

/// Parses the `Debug` text of a duration, exactly.
pub(crate) fn read_duration(duration: &str) -> Option<Duration> {
    let unit_at = duration.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = duration.split_at(unit_at);
    let unit: u128 = match unit {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "µs" => 1_000,
        "ns" => 1,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut nanos = whole.parse::<u128>().ok()?.checked_mul(unit)?;
    let mut digit_is = unit;
    for digit in fraction.chars() {
        digit_is /= 10;
        nanos += u128::from(digit.to_digit(10)?) * digit_is;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use flyball_sync::random::SplitMix64;

    use super::*;

    #[test]
    fn every_action_is_read_exactly() {
        assert_eq!(action_delay(&Action::await_change()), Ok(None));
        let edges = [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(1_001), Duration::MAX];
        for duration in edges {
            assert_eq!(action_delay(&Action::requeue(duration)), Ok(Some(duration)));
        }
        // The right shifts vary the order of magnitude of the durations.
        let mut random = SplitMix64::new(0);
        for round in 0..100_000 {
            let x = random.next();
            let duration = Duration::new(x >> (round % 64), (x % 1_000_000_000) as u32 >> (round % 30));
            assert_eq!(action_delay(&Action::requeue(duration)), Ok(Some(duration)));
        }
    }

    #[test]
    fn rejects_unreadable_values() {
        for shown in
            ["Action", "Some(", "Some()", "Some(5)", "Some(5m)", "Some(1.x)", "Some(99999999999999999999s)"]
        {
            assert_eq!(read(shown), None, "{shown}");
        }
    }
}
