//! On a real API server: `cargo xtask e2e` (tools/e2e/README.md). They run for seconds of real time; what is asserted in memory is asserted here.

mod own_cluster {
    use crate::cluster::Real;
    use crate::{reader_scenarios, scenarios};

    macro_rules! on_a_real_server {
        ($scenarios:ident: $($program:ident)*) => {$(
            #[tokio::test]
            #[ignore = "needs an API server: cargo xtask e2e"]
            async fn $program() {
                $scenarios::$program(&Real).await;
            }
        )*};
    }

    on_a_real_server! {
        scenarios:
        accounts
        config_map_generator
        documents
        environments
        restarter
        secret_syncer
        shared_streams
        truststores
    }

    on_a_real_server! {
        reader_scenarios:
        dynamic
        events
        multi
        nodes
        versions
    }
}
