//! Elections on tokio's paused clock, and single candidates without a clock or requests.

mod candidate_rules;
mod election;
mod leader_random;
mod lease_server;
