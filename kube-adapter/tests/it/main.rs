//! What needs no cluster.

mod throttle;
