//! EDGE. The command line. Invalid arguments end the program with exit status 2 and a message.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Plays a recorded Kubernetes cluster through informers into two controllers, and compares their results with the
/// final state of the real cluster.
///
/// Exit status: 0 if the results converged, 1 if not or if the run failed, 2 for a bad file or argument, 130 after Ctrl-C. With `--kube`: 0 if every
/// kind was listed, even if results differ.
#[derive(Clone, Debug, Parser)]
#[command(name = "replay", version)]
pub(crate) struct Args {
    /// The trace, zstd or plain JSON lines [default: the recorded rollout that comes with this program]
    pub(crate) trace: Option<PathBuf>,

    /// Workers of each controller
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096), allow_negative_numbers = true)]
    pub(crate) workers: u32,

    /// Speed of the events: `max`, or a factor of the recorded speed
    #[arg(long, value_name = "max|FACTOR", default_value = "max", value_parser = parse_speed, allow_negative_numbers = true)]
    pub(crate) speed: Speed,

    /// Percentage of reconciles that fail and are retried
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=99), allow_negative_numbers = true)]
    pub(crate) fail: u32,

    /// Faults to inject at random
    #[arg(long, value_name = "FAULTS", value_enum, default_value_t = Faults::None)]
    pub(crate) faults: Faults,

    /// Seed for faults, failures and backoff; thread timing still varies, so runs differ
    #[arg(long, value_name = "S", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Play repeatedly for at least this long, and report the median pass
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) repeat: Option<Duration>,

    /// Play this many copies in renamed namespaces
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub(crate) scale: u32,

    /// Print one JSON object as the last line of stdout, instead of the summary
    #[arg(long)]
    pub(crate) json: bool,

    /// Also report CPU time and peak memory, if the system provides them
    #[arg(long)]
    pub(crate) usage: bool,

    /// Run on the live cluster of the current context instead of the recording. Only lists and watches, in all namespaces. Needs a
    /// program built with `--features kube`
    #[arg(long, conflicts_with_all = ["trace", "speed", "fail", "faults", "repeat", "scale", "usage"])]
    pub(crate) kube: bool,

    /// With `--kube`: stop after this time, if Ctrl-C does not stop the run before
    #[arg(long, value_name = "N", value_parser = parse_seconds, requires = "kube", allow_negative_numbers = true)]
    pub(crate) seconds: Option<Duration>,
}

/// The speed of the events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// As fast as the informers process them.
    Max,
    /// The recorded speed times this factor, which is positive and finite.
    Factor(f64),
}

/// The faults to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Faults {
    /// No faults
    None,
    /// Cut watches
    Drops,
    /// Compact the history, so that the next watch fails with "gone" and its informer relists
    Gone,
    /// Panic in workers
    Panics,
    /// All of them
    All,
}

impl Faults {
    pub(crate) fn drops(self) -> bool {
        matches!(self, Self::Drops | Self::All)
    }

    pub(crate) fn gone(self) -> bool {
        matches!(self, Self::Gone | Self::All)
    }

    pub(crate) fn panics(self) -> bool {
        matches!(self, Self::Panics | Self::All)
    }
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse::<f64>() {
        Ok(factor) if (1e-3..=1e6).contains(&factor) => Ok(Speed::Factor(factor)),
        Ok(_) => Err("a factor must be between 0.001 and 1000000".to_owned()),
        Err(_) => Err("neither `max` nor a number".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("must be between 0 and 1000000 seconds".to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::error::ErrorKind> {
        Args::try_parse_from(std::iter::once(&"replay").chain(args)).map_err(|error| error.kind())
    }

    #[test]
    fn defaults_are_those_of_the_main_job() {
        let args = parse(&[]).unwrap();
        assert_eq!(
            (
                args.trace,
                args.workers,
                args.speed,
                args.fail,
                args.faults,
                args.repeat,
                args.scale,
                args.json,
                args.usage
            ),
            (None, 4, Speed::Max, 0, Faults::None, None, 1, false, false)
        );
    }

    #[test]
    fn all_arguments_are_understood() {
        let all = "t.zst --workers 64 --speed 2.5 --fail 20 --faults all --seed 7 --repeat 1.5 --scale 3 --json --usage";
        let args = parse(&all.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(
            (args.workers, args.speed, args.fail, args.faults),
            (64, Speed::Factor(2.5), 20, Faults::All)
        );
        assert_eq!((args.seed, args.repeat, args.scale), (7, Some(Duration::from_millis(1500)), 3));
        assert!(args.json && args.usage);
    }

    #[test]
    fn a_live_cluster_is_not_played() {
        let args = parse(&["--kube", "--seconds", "2.5", "--workers", "8", "--json"]).unwrap();
        assert_eq!((args.kube, args.seconds), (true, Some(Duration::from_millis(2500))));
        let conflict = clap::error::ErrorKind::ArgumentConflict;
        for wrong in ["t.zst", "--speed=1", "--faults=all", "--fail=1", "--repeat=1", "--scale=2", "--usage"]
        {
            assert_eq!(parse(&["--kube", wrong]).unwrap_err(), conflict, "{wrong}");
        }
        let missing = clap::error::ErrorKind::MissingRequiredArgument;
        assert_eq!(parse(&["--seconds", "1"]).unwrap_err(), missing);
    }

    #[test]
    fn each_fault_is_its_own_and_all_is_every_one() {
        let which = |f: Faults| (f.drops(), f.gone(), f.panics());
        assert_eq!(which(Faults::None), (false, false, false));
        assert_eq!(which(Faults::Drops), (true, false, false));
        assert_eq!(which(Faults::Gone), (false, true, false));
        assert_eq!(which(Faults::Panics), (false, false, true));
        assert_eq!(which(Faults::All), (true, true, true));
    }
}
