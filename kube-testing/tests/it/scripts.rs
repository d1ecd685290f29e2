//! Scripts with exact outcomes. `tools/e2e/tests/kube/scripts.rs` runs the same scripts on a real server.

use api_scripts::Server;
use flyball_kube_testing::ApiServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

fn server() -> (ApiServer, Server) {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Event>().register::<Namespace>().register::<Pod>();
    server.register::<Secret>().register::<Service>().register::<ServiceAccount>();
    server.register::<Deployment>().register::<Job>().register::<Lease>().register::<EndpointSlice>();
    server.register::<CronJob>().register::<ClusterRole>();
    server.register::<Role>().register::<CustomResourceDefinition>();
    // As on a real server, the scripts check each answer, including those that a client would not return before its retries have failed.
    let on = Server { client: super::client_without_retries(&server), namespace: "default".to_owned() };
    (server, on)
}

macro_rules! in_memory {
    ($($module:ident::$script:ident,)*) => {
        $(
            mod $script {
                #[tokio::test(start_paused = true)]
                async fn $module() {
                    let (_server, on) = super::server();
                    api_scripts::$module::$script(&on).await;
                }
            }
        )*
    };
}

api_scripts::each!(in_memory);

#[tokio::test(start_paused = true)]
async fn garbage_is_collected() {
    let (_server, on) = server();
    api_scripts::collected::all(&on).await;
}

#[tokio::test(start_paused = true)]
async fn forgotten_versions_are_expired() {
    let (server, on) = server();
    api_scripts::expired::all(&on, async || server.compact()).await;
}
