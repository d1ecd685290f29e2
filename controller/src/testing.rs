//! EDGE. Tests of reconcilers without a cluster, without threads and without sleeping. A [`Simulation`] runs the same controller code as in
//! production, one step after another. A seed determines the order of the steps, and only the test advances the clock.
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
