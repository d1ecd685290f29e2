//! SHELL. Following a store: observers, subscriptions, and handlers over them.

mod following;
mod handler;
mod initial_processed;
pub(crate) mod observer;
#[cfg(feature = "stream")]
mod stream;
mod subscription;

pub use self::handler::{HandlerExit, HandlerFuture, HandlerRegistration};
pub use self::initial_processed::InitialProcessed;
pub use self::observer::Observer;
pub use self::subscription::{
    BoundedSubscription, Lag, Lagged, NextChange, NextEvent, OverflowPolicy, Subscription,
    SubscriptionBuilder, SubscriptionEvent,
};
