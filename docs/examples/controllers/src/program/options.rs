//! PURE. What a program is asked for on its command line: of kube-controller-manager's flags, those of leader election.

use std::time::Duration;

use flyball_kube::leader::Timing;
use jiff::SignedDuration;

/// What there is to ask for.
pub const USAGE: &str = "\
  --leader-elect                            work only while this process leads; off by default
  --leader-elect-namespace NAME             where the Lease is; by default the namespace of the context, or of the pod
  --leader-elect-lease-duration DURATION    how long others wait after its last renewal (15s)
  --leader-elect-renew-deadline DURATION    how long a leader leads after its last renewal (10s)
  --leader-elect-retry-period DURATION      between two tries (2s)";

/// What a program is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether it works only while it leads.
    pub leader_elect: bool,
    /// Where the Lease is, if that was said.
    pub namespace: Option<String>,
    /// The periods of the election.
    pub timing: Timing,
}

impl Options {
    /// Reads them as Go does: a value follows its flag, or a `=`; one of yes or no has the `=` only.
    ///
    /// # Errors
    /// In words, for what cannot be read, and for periods that do not fit.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let timing = options.timing;
        let [mut lease, mut renew, mut retry] =
            [timing.lease_duration(), timing.renew_deadline(), timing.retry_period()];
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (flag, given) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*argument, None),
            };
            let is_given = given.is_some();
            let mut value =
                || given.clone().or_else(|| arguments.next()).ok_or_else(|| format!("{flag} needs a value"));
            match flag {
                "--leader-elect" if !is_given => options.leader_elect = true,
                "--leader-elect" => options.leader_elect = yes_or_no(&value()?)?,
                "--leader-elect-namespace" => options.namespace = Some(value()?),
                "--leader-elect-lease-duration" => lease = duration(&value()?)?,
                "--leader-elect-renew-deadline" => renew = duration(&value()?)?,
                "--leader-elect-retry-period" => retry = duration(&value()?)?,
                _ => return Err(format!("{argument:?} is not known")),
            }
        }
        options.timing = Timing::new(lease, renew, retry).map_err(|error| error.to_string())?;
        Ok(options)
    }
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("{value:?} is neither true nor false"))
}

/// As Go writes it, among others: `15s`, `1m30s`, `500ms`.
fn duration(value: &str) -> Result<Duration, String> {
    let duration = value.parse::<SignedDuration>().ok().and_then(|duration| duration.try_into().ok());
    duration.ok_or_else(|| format!("{value:?} is no length of time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        Options::parse(arguments.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn nobody_is_elected_unless_asked_for() {
        assert_eq!(
            parse(""),
            Ok(Options { leader_elect: false, namespace: None, timing: Timing::default() })
        );
        for (arguments, expected) in [
            ("--leader-elect", true),
            ("--leader-elect=true", true),
            ("--leader-elect --leader-elect=false", false),
        ] {
            assert_eq!(parse(arguments).unwrap().leader_elect, expected, "{arguments}");
        }
    }

    #[test]
    fn a_value_follows_its_flag_or_a_sign() {
        for arguments in
            ["--leader-elect-namespace a --leader-elect", "--leader-elect --leader-elect-namespace=a"]
        {
            let options = parse(arguments).unwrap();
            assert_eq!(
                (options.leader_elect, options.namespace.as_deref()),
                (true, Some("a")),
                "{arguments}"
            );
        }
        let options = parse(
            "--leader-elect-lease-duration 1m0s --leader-elect-renew-deadline=40s --leader-elect-retry-period 500ms",
        );
        let [lease, renew, retry] = [60_000, 40_000, 500].map(Duration::from_millis);
        assert_eq!(options.unwrap().timing, Timing::new(lease, renew, retry).unwrap());
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        for (arguments, expected) in [
            ("--leader-elects", "\"--leader-elects\" is not known"),
            ("crd", "\"crd\" is not known"),
            ("--leader-elect=maybe", "\"maybe\" is neither true nor false"),
            ("--leader-elect-namespace", "--leader-elect-namespace needs a value"),
            ("--leader-elect-retry-period=-2s", "\"-2s\" is no length of time"),
            ("--leader-elect-retry-period 2", "\"2\" is no length of time"),
            (
                "--leader-elect-lease-duration 10s",
                "the renew deadline must be shorter than the lease duration",
            ),
        ] {
            assert_eq!(parse(arguments), Err(expected.to_owned()), "{arguments}");
        }
    }
}
