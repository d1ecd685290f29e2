//! The models of flyball-ratelimit.

mod adaptive;
mod bucket;
mod limiter;
