//! Runs programs in memory and on virtual time.

use std::time::Duration;

use flyball_kube_testing::ApiServer;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::Client;

use crate::life::World;

/// A world that has a separate server in memory for each program.
pub(crate) struct Memory;

impl World for Memory {
    const SETTLED: Duration = Duration::from_secs(20);

    async fn client(&self) -> Client {
        let server = ApiServer::new();
        server
            .register::<ConfigMap>()
            .register::<Secret>()
            .register::<Service>()
            .register::<ServiceAccount>();
        server.register::<Pod>().register::<Deployment>().register::<StatefulSet>().register::<Event>();
        server.register::<k8s_openapi::api::core::v1::Event>().register::<k8s_openapi::api::core::v1::Node>();
        server.client()
    }
}

macro_rules! in_memory {
    ($scenarios:ident: $($program:ident)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $program() {
            crate::$scenarios::$program(&Memory).await;
        }
    )*};
}

each_scenario!(in_memory);
