//! What a queue tells of itself, and what can be read of it.

#[cfg(feature = "metrics")]
mod facade;
mod hostile;
mod meanings;
#[cfg(feature = "prometheus-client")]
mod scrape;
#[cfg(feature = "tracing")]
mod traced;
