//! Runs the scenarios on a real API server: `cargo xtask e2e` (tools/e2e/README.md). The scenarios take seconds of real time, and have
//! the same assertions as in memory.

mod own_cluster {
    use crate::cluster::Real;

    macro_rules! on_a_real_server {
        ($scenarios:ident: $($program:ident)*) => {$(
            #[tokio::test]
            #[ignore = "needs an API server: cargo xtask e2e"]
            async fn $program() {
                crate::$scenarios::$program(&Real).await;
            }
        )*};
    }

    each_scenario!(on_a_real_server);
}
