//! SHELL. How to follow the changes of a store: with observers, subscriptions, and handlers for the changes of a subscription.
//!
//! # Why an object may not reach its subscriber
//! | reason | where it is decided | how to see it |
//! |---|---|---|
//! | the source cannot decode the object, or does not deliver it | the [`Source`](crate::Source) | the source's own log |
//! | the list is not complete yet, or failed before it was complete | `informer/run.rs` | `status().state`, `last_error` |
//! | the publication of a list panicked, so the whole list was discarded | `informer/run/apply.rs` | `status().panics`, `last_panic` |
//! | a user's function panicked when it processed the event | `informer/run/apply.rs` | `status().panics`, `last_panic` |
//! | the event arrived after a newer deletion of the object, or after a newer list | `informer/tombstones.rs` | `status().stale_events` |
//! | the same or a newer version of the object is stored | `compare_event` in `store/write.rs` | `status().stale_events`; without an informer, `WriteOutcome::Stale` |
//! | the object is listed unchanged | `compare` in `table/relist.rs` | to compare the contents, set `Schema::with_content_eq` |
//! | two listed objects have the same key: the last one counts | `store/relist.rs` | `Store::get` |
//! | the index function, or the comparison of its values, failed on the object, so a subscription to an index value never selects it | `table/definition.rs`, `plan` in `table.rs` | `Store::index_errors` |
//! | the subscription selects another key or index value | `changes/selection.rs` | `Store::by_index` |
//! | the object was added and deleted before it was delivered, or its change was coalesced with a later one | the table in `changes/pending.rs` | `lag().pending` |
//! | the filter of the subscription rejects the object | `deliver` in `changes/pending.rs` | |
//! | the subscription was dropped, has ended, or exceeded its bound | `merge` in `changes/buffer.rs` | `next()`: `None` or `Restarted` |
//! | the future of the event handler is not polled | `watch/handler.rs` | `Store::get` has the object |
//!
//! An object that was in the snapshot with which the subscription starts is delivered as `Initial`, not as `Added`.

mod following;
mod handler;
mod initial_processed;
pub(crate) mod observer;
#[cfg(feature = "stream")]
mod stream;
mod subscription;

pub use self::handler::{HandlerExit, HandlerRegistration};
pub use self::initial_processed::InitialProcessed;
pub use self::observer::Observer;
pub use self::subscription::{Subscription, SubscriptionBuilder, SubscriptionEvent};
