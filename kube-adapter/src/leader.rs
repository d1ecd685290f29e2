//! EDGE. Leader election by a Lease of `coordination.k8s.io/v1`: of several processes, one at a time does the work.
//!
//! [`Election`] takes part in one; [`Candidate`] is what it does, without time and requests.
//!
//! # client-go's rules
//! The record is client-go's, so that both can take part in one election, and its periods, `LeaseDuration` 15 s, `RenewDeadline` 10 s, `RetryPeriod` 2 s, with its
//! conditions. Compared with `tools/leaderelection` of client-go 0.36:
//!
//! | rule | client-go | here |
//! |---|---|---|
//! | who may take a lease | nobody holds it, oneself does, or it was not seen to change for the duration it says, on the local clock | the same |
//! | what a change is | of the record; labels do not count | the same |
//! | a candidate looks again | after 1 to 2.2 retry periods, by chance | the same, but not later than the lease runs out |
//! | a leader renews | each retry period, over the version it has last seen; after an error it looks, then writes over that | the same |
//! | it leads until | 10 s of failed tries, begun up to 2 s after the last **answer** | 10 s after the last renewal that succeeded was **sent**: a slow answer makes no second leader |
//! | a request may take | the renew deadline, if the client has no timeout of its own | half of it |
//! | another holder is seen | it leads on until the deadline | it leads no more |
//! | what happens then | `OnStoppedLeading`, and most programs exit | the work is told; a wind-down later, 2.5 s, still before others can lead, it is dropped |
//! | transitions, time of acquisition | one more for each new holder; kept when renewed | the same |
//! | duration in the record | whole seconds, rounded down: less than one second is none | rounded up |
//! | a renewal by a wall clock that stands still, or goes back | may look like none | is at least one microsecond later than the last |
//! | giving it away | `ReleaseOnCancel`, off; no holder, duration 1 s; one try, after the loop has ended for whatever reason | on, as the work is known to be over; the same record; three tries; only while it leads, or for a write that was under way when a candidate was told to stop |
//! | before it leads | caches of controller-runtime's manager fill | with [`Election::run_standby`] they fill, too; with [`Election::run`] nothing begins |
//! | what else the Lease says | the rest of its `spec` is dropped | is kept |
//! | coordinated elections (alpha) | yes | no |
//!
//! # Events
//! Target `flyball_kube`. Info: it campaigns, it leads, there is a new leader. Warn: it leads no more, unless its work has ended; a request has failed, the first of several. Debug:
//! a renewal; a request that has failed again.
//!
//! # Time
//! Only lengths of time on the local monotonic clock are compared. That clock must run: where a whole machine is suspended and the others are
//! not, its leader wakes up as one, for as long as was left. Such machines need fencing.

mod builder;
mod candidate;
mod driver;
mod election;
mod leadership;
mod lease;
mod question;
mod record;
mod standing;
mod timing;

pub use builder::{ElectionBuilder, unique_identity};
pub use candidate::Candidate;
pub use election::{Election, Ended};
pub use leadership::Leadership;
pub use question::{Answer, Ask, Lost, Step};
pub use record::Record;
pub use standing::{Overstays, Standing};
pub use timing::{InvalidElection, Timing};
