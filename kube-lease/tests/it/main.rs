//! Tests of elections on tokio's paused clock, and tests of a single candidate as a state machine.

mod candidate_rules;
mod election;
mod leader_random;
mod lease_server;
mod single_attempt;
