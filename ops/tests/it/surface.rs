//! Checks the auto traits of the public types.

/// The adapters are `Send`, `Sync`, `Unpin` and `Debug`.
#[test]
fn adapters_are_plain_data() {
    #[cfg(any(feature = "metrics", feature = "prometheus-client", feature = "tracing"))]
    fn data<T: Send + Sync + Unpin + std::fmt::Debug>() {}
    #[cfg(feature = "prometheus-client")]
    data::<flyball_ops::PrometheusQueues>();
    #[cfg(feature = "prometheus-client")]
    data::<flyball_ops::PrometheusQueue>();
    #[cfg(all(feature = "controller", feature = "prometheus-client"))]
    data::<flyball_ops::PrometheusControllers>();
    #[cfg(all(feature = "controller", feature = "prometheus-client"))]
    data::<flyball_ops::PrometheusController>();
    #[cfg(feature = "http")]
    fn server<T: Send + Sync + std::fmt::Debug>() {}
    #[cfg(feature = "http")]
    server::<flyball_ops::OpsServer>();
    #[cfg(feature = "metrics")]
    data::<flyball_ops::MetricsQueue>();
    #[cfg(feature = "tracing")]
    data::<flyball_ops::TracingQueue>();
}
