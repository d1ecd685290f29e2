//! SHELL. How to follow the changes of a store: with observers, subscriptions, and handlers for the changes of a subscription.
//!
//! # Why an object may not reach its subscriber
//! | reason | where it is decided | how to see it |
//! |---|---|---|
//! | the event belongs to a list or a watch that the informer has abandoned | `event` in `reflector/watching.rs` | `status().relists`, `watch_restarts` |
//! | the event arrived after a newer deletion of the object, or after a newer list | `informer/tombstones.rs` | `status().stale_events` |
//! | a user's function panicked when it processed the object | `informer/run/apply.rs` | `status().panics` |
//! | the same or a newer version of the object is stored | `compare_event` in `store/write.rs` | `WriteOutcome::Stale` |
//! | the object is listed unchanged | `compare` in `table/relist.rs` | to compare the contents, set `Schema::with_content_eq` |
//! | the subscription selects another key or index value | `changes/selection.rs` | `Store::by_index` |
//! | the object was added and deleted before it was delivered, or its change was merged with a later one | the table in `changes/pending.rs` | `lag().pending` |
//! | the filter of the subscription rejects the object | `deliver` in `changes/pending.rs` | |
//! | the subscription was dropped, has ended, or fell too far behind | `merge` in `changes/buffer.rs` | `next()`: `None`, `Lagged` or `Restarted` |
//! | the object was in the subscription's initial snapshot | `subscribe` in `store/inner.rs` | `Change::is_initial` |

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
