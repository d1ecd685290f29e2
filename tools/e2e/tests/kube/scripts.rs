//! Scripts with exact outcomes. `kube-testing/tests/it/scripts.rs` runs the same scripts on the in-memory server.

use api_scripts::Server;

use crate::cluster::{Namespace, client_without_retries};

macro_rules! on_a_real_server {
    ($($module:ident::$script:ident,)*) => {
        $(
            mod $script {
                #[tokio::test]
                #[ignore = "needs an API server: cargo xtask e2e"]
                async fn $module() {
                    let (_namespace, on) = super::server().await;
                    crate::cluster::within_limit(api_scripts::$module::$script(&on)).await;
                }
            }
        )*
    };
}

async fn server() -> (Namespace, Server) {
    let client = client_without_retries(e2e::shared_kubeconfig()).await;
    let namespace = Namespace::fresh(&client).await;
    let on = Server { client, namespace: namespace.name.clone() };
    (namespace, on)
}

api_scripts::each!(on_a_real_server);

mod own_cluster {
    use api_scripts::Server;

    use crate::cluster::{Cluster, client_without_retries, within_limit};

    async fn server(cluster: &Cluster) -> Server {
        Server { client: client_without_retries(cluster.kubeconfig()).await, namespace: "default".to_owned() }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn garbage_is_collected() {
        let mut cluster = Cluster::start().unwrap();
        cluster.start_controller_manager(&["garbage-collector-controller"]).unwrap();
        let on = server(&cluster).await;
        within_limit(api_scripts::collected::all(&on)).await;
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn forgotten_versions_are_expired() {
        let mut cluster = Cluster::start().unwrap();
        let on = server(&cluster).await;
        within_limit(api_scripts::expired::all(&on, async || cluster.expire_history().unwrap())).await;
    }
}
