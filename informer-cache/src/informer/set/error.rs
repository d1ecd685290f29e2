//! PURE. The errors of an informer set.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::InformerBuildError;

/// The reason why [`InformerSet::get_or_start`](crate::InformerSet::get_or_start) returned no informer.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{
///     ConfigDifference, Index, Informer, InformerSet, InformerStartError, ManualClock, Schema, Version,
/// };
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// static ODD: Index<u32, bool> = Index::new("odd", |number| number % 2 == 1);
///
/// let server = TestServer::new(NUMBERS, |_, _, _| {});
/// let builder = || Informer::builder(NUMBERS, server.clone()).timer(ManualClock::new().timer());
/// let set = InformerSet::new(|run| drop(std::thread::spawn(|| flyball_sync::block_on(run))));
/// let numbers = set.get_or_start("numbers", builder())?;
///
/// let odd = set.get_or_start("numbers", builder().index(&ODD)).unwrap_err();
/// assert_eq!(odd, InformerStartError::ConfigMismatch(ConfigDifference::Index("odd")));
/// numbers.add_index(&ODD)?; // the index that the other user needs
/// set.get_or_start("numbers", builder().index(&ODD))?;
///
/// set.shut_down();
/// assert_eq!(set.get_or_start("numbers", builder()).unwrap_err(), InformerStartError::ShutDown);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerStartError {
    /// The informer cannot be built.
    Build(InformerBuildError),
    /// The configuration of the informer in use differs from the requested one.
    ConfigMismatch(ConfigDifference),
    /// The set was shut down.
    ShutDown,
}

/// The first difference that was found between the configuration of the informer in use and the requested configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigDifference {
    /// A setting of the [`ReflectorConfig`](crate::ReflectorConfig) differs; this is its name.
    Reflector(&'static str),
    /// The informer in use lacks an index; this is the index's name. It may have an index with this name that is of another
    /// [kind](crate::Index).
    Index(&'static str),
    /// Only one of the two configurations has a transformation.
    Transform,
}

impl fmt::Display for ConfigDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reflector(setting) => f.write_str(setting),
            Self::Index(name) => write!(f, "no index {name:?}"),
            Self::Transform => f.write_str("transform"),
        }
    }
}

impl fmt::Display for InformerStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::ConfigMismatch(difference) => {
                write!(f, "the informer in use is configured differently: {difference}")
            }
            Self::ShutDown => f.write_str("the set of informers was shut down"),
        }
    }
}

impl Error for InformerStartError {}

/// The error returned by [`InformerSet::synced`](crate::InformerSet::synced) if an informer ended before its first list.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{Informer, InformerSet, ManualClock, NotSynced, Schema, Version};
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// let builder = Informer::builder(NUMBERS, TestServer::new(NUMBERS, |_, _, _| {}));
///
/// let set = InformerSet::new(drop); // runs nothing
/// let numbers = set.get_or_start("numbers", builder.timer(ManualClock::new().timer()))?;
/// let NotSynced { ended } = flyball_sync::block_on(set.synced()).unwrap_err();
/// assert_eq!(ended, ["numbers".into()]);
/// # drop(numbers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSynced {
    /// The names of the informers that ended before their first list; never empty. Other informers may not have published their first list yet.
    pub ended: Vec<Arc<str>>,
}

impl fmt::Display for NotSynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ended before the first list: ")?;
        for (at, name) in self.ended.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

impl Error for NotSynced {}
