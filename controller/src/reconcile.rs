//! PURE. What one reconcile is given, what it returns and how it ended.

mod action;
pub(crate) mod context;
mod failure_class;
mod outcome;
mod reconcile_error;

pub use self::action::Action;
pub use self::context::Context;
pub use self::failure_class::Class;
pub use self::outcome::Outcome;
pub use self::reconcile_error::Failure;
