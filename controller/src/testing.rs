//! EDGE. Support for testing reconcilers without a cluster, without threads and without sleeping. A [`Simulation`] runs the same controller code as
//! in production, one step after another. A seed determines the order of the steps, and only the test advances the clock.
//!
//! A [`TestServer`](flyball_informer_cache::testing::TestServer) replaces the cluster, and the test can inject faults into it.

mod runtime;
mod scheduler;
mod simulated_task;
mod simulated_time;
mod simulation;

pub use self::simulated_task::SimulatedTask;
pub use self::simulated_time::SimulatedTime;
pub use self::simulation::Simulation;
