//! PURE. The number of workers of a controller.

use std::ops::RangeInclusive;

/// The number of workers: a fixed number, or a minimum and a maximum. See [`Controller::workers`](crate::Controller::workers).
///
/// With the feature `serde`, it is a number, or a map with `min` and `max`.
///
/// # Examples
/// ```
/// use flyball_controller::{ControllerConfig, Workers};
///
/// let mut config = ControllerConfig::default();
/// assert_eq!(config.workers, Workers::from(1));
/// config.workers = (1..=16).into();
/// # #[cfg(feature = "serde")]
/// assert_eq!(config, serde_json::from_str(r#"{ "workers": { "min": 1, "max": 16 } }"#)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Form", into = "Form"))]
pub struct Workers {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl From<usize> for Workers {
    fn from(workers: usize) -> Self {
        Self { min: workers, max: workers }
    }
}

impl From<RangeInclusive<usize>> for Workers {
    fn from(workers: RangeInclusive<usize>) -> Self {
        Self { min: *workers.start(), max: *workers.end() }
    }
}

/// The serialised form.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "the number of workers must be a number, or a map with `min` and `max`"
)]
enum Form {
    Fixed(usize),
    Between { min: usize, max: usize },
}

#[cfg(feature = "serde")]
impl From<Form> for Workers {
    fn from(form: Form) -> Self {
        match form {
            Form::Fixed(workers) => workers.into(),
            Form::Between { min, max } => Self { min, max },
        }
    }
}

#[cfg(feature = "serde")]
impl From<Workers> for Form {
    fn from(Workers { min, max }: Workers) -> Self {
        if min == max { Self::Fixed(min) } else { Self::Between { min, max } }
    }
}
