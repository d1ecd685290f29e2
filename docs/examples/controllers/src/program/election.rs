//! EDGE. Of several processes of a program, one at a time works.
//!
//! Cancel safety: what is dropped as a leader gives nothing away; others wait until its lease has run out.

use std::error::Error;
use std::fmt;

use flyball_kube::Controller;
use flyball_kube::leader::{Election, Ended, InvalidElection, Leadership, Lost, unique_identity};
use kube::{Client, Resource};

use super::options::Options;

/// Until when a program works: until it is told to end, and only as long as it leads, if it has to.
#[derive(Clone, Debug, Default)]
pub struct Term(Option<Leadership>);

impl Term {
    /// The controller ends in order when the term does, and at once on a second signal.
    pub fn bound<K: Resource>(&self, controller: Controller<K>) -> Controller<K> {
        let controller = controller.shutdown_on_signal();
        match &self.0 {
            Some(leadership) => controller.graceful_shutdown_on(leadership.lost()),
            None => controller,
        }
    }
}

/// Takes part in the election of a program's leader.
///
/// # Errors
/// When its periods do not fit each other.
pub fn election(client: &Client, program: &str, options: &Options) -> Result<Election, InvalidElection> {
    // In a pod its name.
    let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
    let namespace = options.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    Election::builder(client.clone(), namespace, format!("flyball-example-{program}"), identity)
        .lease_duration(options.lease_duration)
        .renew_deadline(options.renew_deadline)
        .retry_period(options.retry_period)
        .on_new_leader(|leader| eprintln!("{leader} leads"))
        .build()
}

/// Begins the work when it leads. When `stop` is done the work ends in order, and then the lease is given away.
///
/// # Errors
/// When it leads no more, though nobody has told it to end. The work has ended, too: in order, or it was dropped before others lead.
pub async fn as_leader<F: Future<Output = ()>>(
    mut election: Election,
    stop: impl Future<Output = ()>,
    work: impl FnOnce(Term) -> F,
) -> Result<(), LeadershipLost> {
    match election.run_until(stop, |leadership| work(Term(Some(leadership)))).await {
        Ended::Done(()) | Ended::Stopped => Ok(()),
        Ended::Lost(why, _) => Err(LeadershipLost(why)),
    }
}

/// Another process may lead now: this one has to end, and can begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipLost(pub Lost);

impl fmt::Display for LeadershipLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("leads no more: ")?;
        match &self.0 {
            Lost::NotRenewed => f.write_str("the lease could not be renewed in time"),
            Lost::Taken(holder) if holder.is_empty() => f.write_str("somebody gave the lease away"),
            Lost::Taken(holder) => write!(f, "the lease was taken by {holder:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Error for LeadershipLost {}
