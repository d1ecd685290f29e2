//! PURE. The conversion from kube-runtime's `controller::Config`.

use std::time::Duration;

use kube::runtime::controller::Config as KubeConfig;

use crate::Config;
use crate::controller::read_duration;

/// Converts kube-runtime's configuration, with its debounce and its concurrency.
///
/// kube 5 has no getters for these values. So they are parsed from the `Debug` text of the configuration, as in
/// [`action_delay`](crate::action_delay), and accepted only if a configuration that is built from them has the same text.
///
/// # Panics
/// Panics if a version of kube formats its configuration differently, because otherwise a concurrency limit would be lost silently.
impl From<KubeConfig> for Config {
    #[track_caller]
    fn from(config: KubeConfig) -> Self {
        let shown = format!("{config:?}");
        let read = read(&shown).filter(|(debounce, concurrency)| {
            let made = KubeConfig::default().debounce(*debounce).concurrency(*concurrency);
            format!("{made:?}") == shown
        });
        let Some((debounce, concurrency)) = read else {
            panic!("cannot parse kube-runtime's configuration: {shown}")
        };
        Self::default().debounce(debounce).concurrency(concurrency)
    }
}

/// Parses the values in `Config { debounce: 1.5ms, concurrency: 3 }`.
fn read(shown: &str) -> Option<(Duration, u16)> {
    let value = |name| {
        let (_, rest) = shown.split_once(name)?;
        rest.split([',', ' ', '}']).next()
    };
    Some((read_duration(value("debounce: ")?)?, value("concurrency: ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use flyball_sync::random::SplitMix64;

    use super::*;
    use crate::config::Debounce;

    #[test]
    fn every_configuration_of_kubes_is_read_exactly() {
        let mut random = SplitMix64::new(0);
        for round in 0..10_000 {
            let x = random.next();
            let debounce = Duration::new(x >> (20 + round % 44), (x % 1_000_000_000) as u32 >> (round % 30));
            let concurrency = random.next() as u16;
            let config = Config::from(KubeConfig::default().debounce(debounce).concurrency(concurrency));
            let quiet = config.debounce.map_or(Duration::ZERO, |Debounce { quiet, .. }| quiet);
            assert_eq!((quiet, config.concurrency), (debounce, concurrency));
        }
        assert_eq!(Config::from(KubeConfig::default()).debounce, None);
    }

    #[test]
    fn rejects_unreadable_values() {
        for shown in ["Config", "Config { debounce: 1s }", "Config { debounce: 1, concurrency: 3 }"] {
            assert_eq!(read(shown), None, "{shown}");
        }
    }
}
