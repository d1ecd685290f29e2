//! What a queue tells of itself, and what can be read of it.

mod meanings;
mod panics_in_user_code;
