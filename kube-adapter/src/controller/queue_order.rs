//! PURE. What differs between the orders: the queue's type, and how a change is added to it.

use std::sync::Arc;

use flyball_informer_cache::NamespacedName;
use flyball_sync::TokioTimer;
use flyball_workqueue::{AddError, Added, DelayMode, Fair, Fifo, Order, Priority, Queue, WithTimer};

use super::reconcile_reasons::{Reason, Reasons};
use super::trigger::Trigger;
use crate::config::Debounce;
use crate::config::boxed_policy::Limit;

/// The queue of every controller of this crate, in one of three orders.
pub(crate) type Keys<O> = Queue<NamespacedName, O, Limit, WithTimer<TokioTimer>>;
/// The loop over it. Its types know nothing of the user's: it is compiled once for each order, here.
pub(crate) type Loop<O> = flyball_controller::Controller<NamespacedName, O, Limit, WithTimer<TokioTimer>>;
/// Namespaces as groups; those of objects without one are one group.
pub(crate) type ByNamespace = Fair<NamespacedName, Arc<str>>;

/// An order that a controller can have.
pub(crate) trait Turning: Order<NamespacedName> + Sized {
    /// Has the loop listen to what brings keys.
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, adding: Adding) -> Loop<Self>;

    /// Adds a key at a priority, where there are some.
    fn add(queue: &Keys<Self>, key: NamespacedName, priority: i8) -> Result<Added, AddError<NamespacedName>>;
}

impl Turning for Fifo {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, adding: Adding) -> Loop<Self> {
        trigger.fifo(to, adding)
    }

    fn add(queue: &Keys<Self>, key: NamespacedName, _: i8) -> Result<Added, AddError<NamespacedName>> {
        queue.add(key)
    }
}

impl Turning for Priority {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, adding: Adding) -> Loop<Self> {
        trigger.priority(to, adding)
    }

    fn add(queue: &Keys<Self>, key: NamespacedName, at: i8) -> Result<Added, AddError<NamespacedName>> {
        queue.with_priority(at).add(key)
    }
}

impl Turning for ByNamespace {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, adding: Adding) -> Loop<Self> {
        trigger.fair(to, adding)
    }

    fn add(queue: &Keys<Self>, key: NamespacedName, _: i8) -> Result<Added, AddError<NamespacedName>> {
        queue.add(key)
    }
}

/// How a key is added.
#[derive(Clone)]
pub(crate) struct Adding {
    pub(crate) debounce: Option<Debounce>,
    /// The priority of what there is at the start.
    pub(crate) initial: i8,
    pub(crate) reasons: Arc<Reasons>,
}

impl Adding {
    /// What there is at the start waits for nothing: it does not come in bursts.
    pub(crate) fn add<O: Turning>(
        &self,
        queue: &Keys<O>,
        key: NamespacedName,
        initial: bool,
        reason: impl FnOnce() -> Reason,
    ) -> Result<Added, AddError<NamespacedName>> {
        // Before the key is added: it may be handed out at once.
        self.reasons.note(&key, reason);
        match self.debounce {
            _ if initial => O::add(queue, key, self.initial),
            None => O::add(queue, key, 0),
            Some(Debounce { quiet, longest }) => {
                queue.add_after_with(key, quiet, DelayMode::Debounce { max_wait: longest })
            }
        }
    }
}
