//! EDGE. The command-line options of a program: kube-controller-manager's flags for leader election, and controller-runtime's flag for probes.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Parser};
use jiff::SignedDuration;

/// Runs a controller in the cluster of the current context, until SIGTERM or Ctrl-C
#[derive(Clone, Debug, Parser, PartialEq, Eq)]
// If a flag occurs several times, the last occurrence counts, as in Go.
#[command(args_override_self = true)]
pub struct Options {
    /// The address at which `/readyz` and `/healthz` are served; none by default
    #[arg(long = "health-probe-bind-address", value_name = "ADDRESS")]
    pub probes: Option<SocketAddr>,
    /// Reconcile only while this process is the leader
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub leader_elect: bool,
    /// The namespace of the Lease; by default the namespace of the kubeconfig context or, in a pod, of the pod
    #[arg(long = "leader-elect-namespace", value_name = "NAME")]
    pub namespace: Option<String>,
    /// How long other processes wait after the last renewal of the Lease before they acquire it
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// How long a leader continues to lead after its last successful renewal
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub renew_deadline: Duration,
    /// The time between two attempts to acquire or renew the Lease
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,
}

/// Parses a duration such as `15s`, `1m30s` or `500ms`. Accepts, among other formats, the format of Go's durations.
fn duration(value: &str) -> Result<Duration, jiff::Error> {
    value.parse::<SignedDuration>()?.try_into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(arguments: &str) -> Result<Options, ErrorKind> {
        let arguments = std::iter::once("program").chain(arguments.split_whitespace());
        Options::try_parse_from(arguments).map_err(|error| error.kind())
    }

    #[test]
    fn accepts_valid_flags() {
        Options::command().debug_assert();
    }

    #[test]
    fn election_is_off_by_default() {
        for (arguments, expected) in [
            ("", false),
            ("--leader-elect", true),
            ("--leader-elect=true", true),
            ("--leader-elect --leader-elect=false", false),
        ] {
            assert_eq!(parse(arguments).unwrap().leader_elect, expected, "{arguments}");
        }
        let Options { namespace, lease_duration, renew_deadline, retry_period, .. } = parse("").unwrap();
        assert_eq!(namespace, None);
        assert_eq!([lease_duration, renew_deadline, retry_period], [15, 10, 2].map(Duration::from_secs));
    }

    #[test]
    fn a_value_follows_its_flag_or_an_equals_sign() {
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
        let Options { lease_duration, renew_deadline, retry_period, .. } = options.unwrap();
        let given = [60_000, 40_000, 500].map(Duration::from_millis);
        assert_eq!([lease_duration, renew_deadline, retry_period], given);
    }

    #[test]
    fn rejects_invalid_flags() {
        for (arguments, expected) in [
            ("--leader-elects", ErrorKind::UnknownArgument),
            ("crd", ErrorKind::UnknownArgument),
            ("--leader-elect=maybe", ErrorKind::InvalidValue),
            ("--leader-elect-namespace", ErrorKind::InvalidValue),
            ("--leader-elect-retry-period=-2s", ErrorKind::ValueValidation),
            ("--leader-elect-retry-period 2", ErrorKind::ValueValidation),
        ] {
            assert_eq!(parse(arguments), Err(expected), "{arguments}");
        }
    }
}
