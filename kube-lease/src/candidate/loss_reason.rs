//! PURE. Why a leadership was lost.

/// Why a leadership was lost.
///
/// # Examples
/// ```
/// use flyball_kube_lease::LossReason;
///
/// fn message(reason: &LossReason) -> String {
///     match reason {
///         LossReason::NotRenewed => "the API server did not answer for 10 s".into(),
///         LossReason::Deleted => "the Lease was deleted".into(),
///         LossReason::Taken(holder) => format!("the Lease was overwritten: {holder:?} holds it"),
///         other => format!("{other:?}"),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease was not renewed in time.
    NotRenewed,
    /// The Lease was deleted.
    Deleted,
    /// The Lease was overwritten before it expired. Contains the holder that the Lease now names; empty if it names none.
    Taken(String),
}
