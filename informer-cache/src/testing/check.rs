//! EDGE. Checks that a source keeps the contract of [`Source`].
//!
//! Cancel safety: if the future of the check is dropped, the changes that the check has made so far stay in the source.

mod follow;
mod steps;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use flyball_sync::Timer;

use self::steps::Check;
use crate::{Schema, Source};

/// A source under test, with methods that change its objects. See [`check_source`].
///
/// The source must be empty when the check starts, and only the methods of this trait may change it.
///
/// # Cancel safety
/// The check awaits the future of each method to its end, unless its own future is dropped.
pub trait SourceFixture: Send {
    /// The type of the source.
    type Source: Source;
    /// The type of the keys.
    type Key: Ord + Clone + fmt::Debug + Send;

    /// Returns the functions that read an object's key and version.
    fn schema(&self) -> Schema<Self::Key, <Self::Source as Source>::Object>;

    /// Returns the source.
    fn source(&self) -> &Self::Source;

    /// Returns the key of the object with this number, from 0 to 9.
    fn key(&self, number: u32) -> Self::Key;

    /// Creates the object with this number, or changes the object if it exists.
    ///
    /// # Cancel safety
    /// See [the trait](Self).
    fn put(&mut self, number: u32) -> impl Future<Output = ()> + Send;

    /// Deletes the object with this number. It is called only if the object exists.
    ///
    /// # Cancel safety
    /// See [the trait](Self).
    fn delete(&mut self, number: u32) -> impl Future<Output = ()> + Send;

    /// Drops the history of changes, so that watches from earlier versions expire.
    ///
    /// The default implementation does nothing; it is for a source that keeps its whole history.
    ///
    /// # Cancel safety
    /// See [the trait](Self).
    fn compact(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// A rule of the contract of [`Source`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::SourceRule;
///
/// assert_eq!(SourceRule::Deletions.to_string(), "a deletion is delivered");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceRule {
    /// A list contains exactly the existing objects, and no object in it is newer than the list.
    List,
    /// All pages of a list show the state at the same version, even if objects change meanwhile. Instead, a later page may fail as expired. The
    /// continuations lead to a last page.
    Pages,
    /// If a request asks for the most recent version, the list contains every change that was made before the request. If a request asks for a list
    /// that is not older than a given version, the list is not older than that version.
    Freshness,
    /// A watch from a version delivers every change after that version. One event may combine consecutive changes of one object.
    EveryChange,
    /// A deletion is delivered as `Deleted`.
    Deletions,
    /// A later change of an object has a greater version, even if the object was deleted in between.
    GrowingVersions,
    /// A watch from the version of a delivered event continues after that event. A watch from the version before it delivers that event, too.
    Resume,
    /// A bookmark is delivered after every change up to its version.
    Bookmarks,
    /// If the history after a version was dropped, a watch from this version either fails as expired (when it is opened or later), or still delivers
    /// every change.
    Expiry,
    /// A watch stays open while there are no changes, unless [`Source::is_polling`] returns true.
    EndOfWatch,
}

impl fmt::Display for SourceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "a list has every object, and no other",
            Self::Pages => "pages of a list show one version",
            Self::Freshness => "a list is as fresh as requested",
            Self::EveryChange => "a watch delivers every change",
            Self::Deletions => "a deletion is delivered",
            Self::GrowingVersions => "versions of an object grow",
            Self::Resume => "a watch continues after a delivered event",
            Self::Bookmarks => "a bookmark follows every change up to its version",
            Self::Expiry => "a watch from a compacted version expires",
            Self::EndOfWatch => "a watch without changes stays open",
        })
    }
}

/// A rule of the contract that a source breaks, found by [`check_source`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::{SourceRule, SourceViolation};
///
/// fn is_about_deletions(violation: &SourceViolation) -> bool {
///     violation.rule() == SourceRule::Deletions
/// }
/// # let _ = is_about_deletions;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceViolation {
    rule: SourceRule,
    detail: String,
}

impl SourceViolation {
    fn new(rule: SourceRule, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }

    /// Returns the rule that the source breaks.
    #[must_use]
    pub const fn rule(&self) -> SourceRule {
        self.rule
    }
}

impl fmt::Display for SourceViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

impl Error for SourceViolation {}

/// Checks that a source keeps the contract of [`Source`]: every rule of [`SourceRule`].
///
/// The check changes at most ten objects through the `fixture`, requests lists and watches, and compares the results. It waits at most `patience` for
/// each page, and for the events of each step, as measured by `timer`. One second is enough for most sources; with a timer that has virtual time,
/// waiting takes no real time. Streaming lists and [unreadable](Source::is_unreadable) objects are not checked.
///
/// # Errors
/// Returns an error that names the first rule that the source breaks.
///
/// # Cancel safety
/// If the future is dropped, the changes that the check has made so far stay in the source.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::{SourceFixture, TestServer, check_source};
/// use flyball_informer_cache::{Schema, ThreadTimer, Version};
/// use std::time::Duration;
///
/// #[derive(Clone)]
/// struct Pod { name: u32, version: Version }
///
/// struct Fixture(TestServer<u32, Pod>);
///
/// impl SourceFixture for Fixture {
///     type Source = TestServer<u32, Pod>;
///     type Key = u32;
///
///     fn schema(&self) -> Schema<u32, Pod> {
///         Schema::new(|pod| pod.name, |pod| pod.version)
///     }
///     fn source(&self) -> &Self::Source {
///         &self.0
///     }
///     fn key(&self, number: u32) -> u32 {
///         number
///     }
///     async fn put(&mut self, number: u32) {
///         self.0.put(Pod { name: number, version: Version::ZERO });
///     }
///     async fn delete(&mut self, number: u32) {
///         self.0.delete(&number);
///     }
///     async fn compact(&mut self) {
///         self.0.compact();
///     }
/// }
///
/// # flyball_sync::block_on(async {
/// let schema = Schema::new(|pod: &Pod| pod.name, |pod| pod.version);
/// let mut fixture = Fixture(TestServer::new(schema, |pod, _, version| pod.version = version));
/// let checked = check_source(&mut fixture, ThreadTimer::new(), Duration::from_millis(100)).await;
/// if let Err(violation) = checked {
///     panic!("{:?} does not hold: {violation}", violation.rule());
/// }
/// # });
/// ```
pub async fn check_source<F: SourceFixture>(
    fixture: &mut F,
    timer: impl Timer,
    patience: Duration,
) -> Result<(), SourceViolation> {
    let mut check = Check { fixture, timer, patience };
    let listed = check.lists().await?;
    let listed = check.pages(listed).await?;
    let listed = check.freshness(listed).await?;
    check.one_change_at_a_time(listed).await?;
    check.resumption().await?;
    check.changes_between_watches().await?;
    check.expiry().await?;
    check.end_of_watch().await
}
