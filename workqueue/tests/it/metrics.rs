//! The events that a queue reports, and the statistics that can be read.

mod meanings;
mod panics_in_user_code;
