//! SHELL. Following a store: observers, subscriptions, and handlers over them.

mod caught_up;
mod following;
mod handler;
pub(crate) mod observer;
#[cfg(feature = "stream")]
mod stream;
mod subscription;

pub use self::caught_up::CaughtUp;
pub use self::handler::{Handler, HandlerEnd, Handling};
pub use self::observer::Observer;
pub use self::subscription::{
    BoundedSubscription, Lag, Lagged, NextChange, NextTold, Overflow, Subscription, SubscriptionBuilder, Told,
};
