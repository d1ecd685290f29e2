//! PURE. Splits the name of a metric into a stem and a unit, which the encoder of `prometheus_client` takes separately.

use prometheus_client::registry::Unit;

/// Returns the name without the suffixes `_total` and `_seconds`, which the encoder appends, and the unit.
pub(crate) fn stem_and_unit(name: &str) -> (&str, Option<Unit>) {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.strip_suffix("_seconds") {
        Some(stem) => (stem, Some(Unit::Seconds)),
        None => (name, None),
    }
}
