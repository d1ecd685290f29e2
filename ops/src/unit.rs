//! PURE. Splits a metric's name as the encoder of `prometheus_client` expects it.

use prometheus_client::registry::Unit;

/// Returns the name without its suffix, which the encoder adds, and its unit.
pub(crate) fn stem_and_unit(name: &str) -> (&str, Option<Unit>) {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.strip_suffix("_seconds") {
        Some(stem) => (stem, Some(Unit::Seconds)),
        None => (name, None),
    }
}
