//! Tests that need no cluster.

mod applier;
mod controller;
mod controller_api;
mod controller_ends;
mod controller_fails;
mod controller_panics;
mod controller_tracing;
mod controller_watches;
mod defects;
mod drop_in;
mod filters;
mod informer;
mod leader_controllers;
mod log_capture;
mod scripted_server;
mod selector;
mod source;
mod source_decode;
mod source_error;
mod stores;
mod stream_source;
mod streams;
mod throttle;
mod trigger_backoff;
mod unreadable;
mod world;
