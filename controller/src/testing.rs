//! EDGE. Tests of reconcilers without a cluster, without threads and without sleeping: a [`Simulation`] runs the very
//! controller that ships, one step after another, in an order that a seed decides, on a clock that stands still until it
//! is moved.
//!
//! The cluster is a [`TestServer`](flyball_informer_cache::testing::TestServer), whose faults are ordered by the test.

mod runtime;
mod scheduler;
mod simulated_task;
mod simulated_time;
mod simulation;

pub use self::simulated_task::SimulatedTask;
pub use self::simulated_time::SimulatedTime;
pub use self::simulation::Simulation;
