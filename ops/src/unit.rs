//! PURE. What the encoder of `prometheus_client` wants of a metric's name.

use prometheus_client::registry::Unit;

/// A name without its ending, which the encoder adds, and its unit.
pub(crate) fn stem_and_unit(name: &str) -> (&str, Option<Unit>) {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.strip_suffix("_seconds") {
        Some(stem) => (stem, Some(Unit::Seconds)),
        None => (name, None),
    }
}
