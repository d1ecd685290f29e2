//! The intended differences between flyball and client-go.

/// An intended difference. Scripts, docs and reports refer to it by its [name](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// If a key is waiting, an add of the key ends its wait.
    AddSupersedesWait,
    /// If a key is queued or dirty, a delayed add of the key changes nothing.
    ReadyCoversDelay,
    /// Keys with equal deadlines become due in the order in which the deadlines were set.
    EqualDeadlinesKeepOrder,
    /// If a key fails again during the wait after its previous failure, the new failure is not counted, and the key waits until the end of that wait.
    FailureCountsOncePerWait,
    /// If a key does not fail for a long time, its failure count expires.
    FailuresExpire,
    /// After shutdown, rate-limited adds are refused, and the failures that they report are not counted.
    RefusedAddCountsNothing,
    /// `done` of a key that is not being processed changes nothing.
    UnpairedDoneRefused,
    /// After shutdown, `get` reports the shutdown only when `done` will not queue any key again, because no dirty key is being processed.
    ClosedMeansNothingComes,
    /// An exponential backoff is refused if its first wait is zero or longer than its longest wait. A limiter that is the maximum of other limiters
    /// is refused if it has none.
    InvalidLimiterRefused,
    /// Waits are computed as whole numbers of nanoseconds, not as rounded floating-point numbers.
    WholeNanoseconds,
    /// To list the values of an index that does not exist is an error, as is a lookup in such an index.
    MissingIndexIsAnError,
    /// If an index function fails for an object, the object is stored, and that index does not contain it.
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

    /// The name of the rule.
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

/// The set of rules that a reference implementation follows in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u32);

impl Rules {
    /// The empty set of rules. With it, a reference implementation behaves like client-go.
    pub const NONE: Self = Self(0);
    /// The set of all rules. With it, a reference implementation behaves like flyball.
    pub const ALL: Self = Self((1 << Rule::ALL.len()) - 1);

    /// Returns a copy of this set in which `rule` is removed if it was in the set, and added if it was not.
    #[must_use]
    pub fn flipped(self, rule: Rule) -> Self {
        Self(self.0 ^ 1 << rule as u32)
    }

    /// Returns whether a rule holds.
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u32 & 1 == 1
    }
}
