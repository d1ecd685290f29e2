//! Where flyball differs from client-go on purpose.

/// One difference. Its name is how scripts, pages and reports call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An add takes the wait of its key away.
    AddSupersedesWait,
    /// A delayed add of a key that is queued or marked changes nothing.
    ReadyCoversDelay,
    /// Equal deadlines come in the order in which they were set.
    EqualDeadlinesKeepOrder,
    /// A failure whose predecessor's wait is not over is not counted, and waits for the rest of it.
    FailureCountsOncePerWait,
    /// The failures of a key that rested for long are forgotten.
    FailuresExpire,
    /// A failure whose add is refused, after shutdown, is not counted.
    RefusedAddCountsNothing,
    /// `done` of a key that is not handed out changes nothing.
    UnpairedDoneRefused,
    /// After shutdown, getters hear of the end only when no marked key can come back any more.
    ClosedMeansNothingComes,
    /// A backoff whose range is empty or starts at zero, and the longest of no waits, cannot be built.
    InvalidLimiterRefused,
    /// Waits are whole nanoseconds, never rounded.
    WholeNanoseconds,
    /// Listing the values of an index that does not exist is an error, as looking one up is.
    MissingIndexIsAnError,
    /// An object whose index function fails is stored; only that index does not contain it.
    IndexErrorIsAValue,
    /// The version of a list is a decimal number below 2⁶⁴, or empty.
    VersionsAreNumbers,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::AddSupersedesWait,
        Self::ReadyCoversDelay,
        Self::EqualDeadlinesKeepOrder,
        Self::FailureCountsOncePerWait,
        Self::FailuresExpire,
        Self::RefusedAddCountsNothing,
        Self::UnpairedDoneRefused,
        Self::ClosedMeansNothingComes,
        Self::InvalidLimiterRefused,
        Self::WholeNanoseconds,
        Self::MissingIndexIsAnError,
        Self::IndexErrorIsAValue,
        Self::VersionsAreNumbers,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AddSupersedesWait => "add-supersedes-wait",
            Self::ReadyCoversDelay => "ready-covers-delay",
            Self::EqualDeadlinesKeepOrder => "equal-deadlines-keep-order",
            Self::FailureCountsOncePerWait => "failure-counts-once-per-wait",
            Self::FailuresExpire => "failures-expire",
            Self::RefusedAddCountsNothing => "refused-add-counts-nothing",
            Self::UnpairedDoneRefused => "unpaired-done-refused",
            Self::ClosedMeansNothingComes => "closed-means-nothing-comes",
            Self::InvalidLimiterRefused => "invalid-limiter-refused",
            Self::WholeNanoseconds => "whole-nanoseconds",
            Self::MissingIndexIsAnError => "missing-index-is-an-error",
            Self::IndexErrorIsAValue => "index-error-is-a-value",
            Self::VersionsAreNumbers => "versions-are-numbers",
        }
    }
}

/// Which rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u32);

impl Rules {
    /// client-go.
    pub const NONE: Self = Self(0);
    /// flyball.
    pub const ALL: Self = Self((1 << Rule::ALL.len()) - 1);

    /// The same with one rule the other way round.
    #[must_use]
    pub fn flipped(self, rule: Rule) -> Self {
        Self(self.0 ^ 1 << rule as u32)
    }

    /// Whether a rule holds.
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u32 & 1 == 1
    }
}
