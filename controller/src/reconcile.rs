//! PURE. The context, the result and the outcome of a reconcile.

mod action;
pub(crate) mod context;
mod failure_class;
mod reconcile_error;
mod reconcile_outcome;

pub use self::action::Action;
pub use self::context::Context;
pub use self::failure_class::FailureClass;
pub use self::reconcile_error::ReconcileError;
pub use self::reconcile_outcome::ReconcileOutcome;
