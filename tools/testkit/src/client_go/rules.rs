//! The intended differences between flyball and client-go.

/// An intended difference. Scripts, docs and reports refer to it by its [name](Self::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An add removes the wait of its key.
    AddSupersedesWait,
    /// A delayed add of a key that is queued or dirty changes nothing.
    ReadyCoversDelay,
    /// Keys with equal deadlines become due in the order in which the deadlines were set.
    EqualDeadlinesKeepOrder,
    /// A failure during the wait for the previous failure is not counted, and its key waits for the rest of that wait.
    FailureCountsOncePerWait,
    /// The failures of a key expire if the key has not failed for a long time.
    FailuresExpire,
    /// A failure whose add is refused, after shutdown, is not counted.
    RefusedAddCountsNothing,
    /// `done` of a key that is not being processed changes nothing.
    UnpairedDoneRefused,
    /// After shutdown, `get` reports the shutdown only once no dirty key can still be queued.
    ClosedMeansNothingComes,
    /// A backoff whose range is empty or starts at zero is refused, and so is a max-of limiter without parts.
    InvalidLimiterRefused,
    /// Waits are whole nanoseconds, never rounded.
    WholeNanoseconds,
    /// Listing the values of an index that does not exist is an error, like a lookup in it.
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

/// The set of rules that hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules(u32);

impl Rules {
    /// No rule holds: client-go.
    pub const NONE: Self = Self(0);
    /// All rules hold: flyball.
    pub const ALL: Self = Self((1 << Rule::ALL.len()) - 1);

    /// Returns this set with `rule` removed if it holds, or added if it does not.
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
