//! EDGE. Leader election, so that only one process of a program works at a time.
//!
//! Cancel safety: if the future of [`as_leader`] is dropped, the lease is not released, so other processes wait until it expires.

use std::error::Error;
use std::fmt::{self, Debug};
use std::hash::Hash;

use flyball_kube::Controller;
use flyball_kube_lease::{
    Election, ElectionOutcome, InvalidElectionConfig, Leadership, LossReason, unique_identity,
};
use kube::{Client, Resource};

use super::options::Options;
use super::probes::Probes;

/// The time during which the controllers of a program reconcile. It ends at a shutdown signal or, with an election, when leadership is lost.
#[derive(Clone, Debug, Default)]
pub struct Term {
    leadership: Option<Leadership>,
    probes: Probes,
}

impl Term {
    /// Creates a term. If `leadership` is `None`, the term begins immediately, and ends at a shutdown signal.
    #[must_use]
    pub const fn new(leadership: Option<Leadership>, probes: Probes) -> Self {
        Self { leadership, probes }
    }

    /// Binds `controller` to the term: the controller fills its caches immediately, reconciles while the term lasts, and then shuts down
    /// gracefully. A second signal stops the controller immediately.
    pub fn bound<K>(&self, controller: Controller<K>) -> Controller<K>
    where
        K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin> + Send + Sync + 'static,
    {
        let controller = controller.shutdown_on_signal();
        self.probes.add(controller.monitor());
        match &self.leadership {
            Some(leadership) => controller.with_leadership(leadership),
            None => controller,
        }
    }
}

/// Builds the election in which the processes of `program` choose their leader.
///
/// # Errors
/// Returns an error if the durations in `options` do not fit together, for example a renew deadline that is longer than the lease duration.
pub fn election(
    client: &Client,
    program: &str,
    options: &Options,
) -> Result<Election, InvalidElectionConfig> {
    // In a pod, HOSTNAME is the name of the pod.
    let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
    let namespace = options.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    Election::builder(client.clone(), namespace, format!("flyball-example-{program}"), identity)
        .lease_duration(options.lease_duration)
        .renew_deadline(options.renew_deadline)
        .retry_period(options.retry_period)
        .on_new_leader(|leader| eprintln!("{leader} leads"))
        .standby(true)
        .build()
}

/// Starts `work` before this process leads, so that `work` can fill its caches while it waits for the leadership. When `stop` completes, `work` shuts
/// down gracefully, and then the lease is released.
///
/// # Errors
/// Returns an error if leadership is lost before `stop` completes. By then `work` has ended: either it has shut down gracefully, or it was
/// dropped before another process could lead.
pub async fn as_leader<F: Future<Output = ()>>(
    mut election: Election,
    stop: impl Future<Output = ()>,
    work: impl FnOnce(Leadership) -> F,
) -> Result<(), LeadershipLost> {
    match election.run(stop, work).await {
        ElectionOutcome::Done(()) | ElectionOutcome::Stopped => Ok(()),
        ElectionOutcome::Lost(why, _) => Err(LeadershipLost(why)),
    }
}

/// The error that reports that leadership was lost. Another process may lead now, so this process must exit. It can be started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipLost(pub LossReason);

impl fmt::Display for LeadershipLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("leads no more: ")?;
        match &self.0 {
            LossReason::NotRenewed => f.write_str("the lease could not be renewed in time"),
            LossReason::Deleted => f.write_str("the lease was deleted"),
            LossReason::Taken(holder) if holder.is_empty() => f.write_str("the lease was released"),
            LossReason::Taken(holder) => write!(f, "the lease was taken by {holder:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Error for LeadershipLost {}
