//! SHELL. Following a store: observers, subscriptions, and handlers over them.
//!
//! # Why an object does not reach its subscriber
//! | reason | where it is decided | how to see it |
//! |---|---|---|
//! | the event belongs to a list or a watch that was given up | `event` in `reflector.rs` | `status().relists`, `watch_restarts` |
//! | it came after a deletion of the object, or a list, that was newer | `informer/tombstones.rs` | `status().stale_events` |
//! | a function of the user panicked on it | `informer/run/applying.rs` | `status().panics` |
//! | the same or a newer version is stored | `judge_event` in `store/write.rs` | `WriteOutcome::Stale` |
//! | it is listed as it is stored | `judge` in `table/relist.rs` | compare contents: `Schema::with_content_eq` |
//! | the subscription is of another key or index value | `changes/selection.rs` | `Store::by_index` |
//! | it came and went before the consumer asked, or was merged with a later change | the table in `changes/pending.rs` | `lag().pending` |
//! | it does not pass the subscription's filter | `deliver` in `changes/pending.rs` | |
//! | the consumer is gone, has ended, or was too far behind | `merge` in `changes/buffer.rs` | `None`, `Lagged` or `Restarted` from it |
//! | it was in the snapshot that the subscription began with | `subscribe` in `store/inner.rs` | `Change::is_initial` |

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
