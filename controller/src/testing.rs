//! EDGE. Tests of reconcilers without a cluster, without threads and without sleeping: a [`Simulation`] runs the same
//! controller code as in production, one step after another, in an order that a seed determines, on a clock that only the test
//! advances.
//!
//! The cluster is a [`TestServer`](flyball_informer_cache::testing::TestServer), into which the test injects faults.

mod runtime;
mod scheduler;
mod simulated_task;
mod simulated_time;
mod simulation;

pub use self::simulated_task::SimulatedTask;
pub use self::simulated_time::SimulatedTime;
pub use self::simulation::Simulation;
