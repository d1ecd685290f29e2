//! Runs the scenarios on a real API server: `cargo xtask e2e` (tools/e2e/README.md). The scenarios wait in real time, which takes seconds; their
//! assertions are the same as in memory.

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
