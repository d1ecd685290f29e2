//! EDGE. What a process in production is asked over HTTP: see [`Server`].

mod answer;
mod check;
mod figures;
mod open;
mod serve;
mod server;

pub use server::Server;
