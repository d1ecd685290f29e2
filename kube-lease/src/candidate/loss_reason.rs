//! PURE. Why a leadership was lost.

/// Why a leadership was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease was not renewed in time.
    NotRenewed,
    /// The Lease names another holder, or none (an empty string), though nobody may have taken it.
    Taken(String),
}
