//! Tests of the assumptions that the other tests make about the clusters.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::cluster::{Namespace, client, within_limit};

fn maps(client: &Client, namespace: &Namespace) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &namespace.name)
}

async fn create(api: &Api<ConfigMap>, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    api.create(&PostParams::default(), &map).await.unwrap();
}

/// Returns whether this config map exists. The namespace may also have config maps that the cluster itself created.
async fn is_there(api: &Api<ConfigMap>, name: &str) -> bool {
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.iter().any(|map| map.metadata.name.as_deref() == Some(name))
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn namespaces_are_apart() {
    within_limit(async {
        let client = client().await;
        let (one, two) = (Namespace::fresh(&client).await, Namespace::fresh(&client).await);
        create(&maps(&client, &one), "a").await;
        assert!(is_there(&maps(&client, &one), "a").await);
        assert!(!is_there(&maps(&client, &two), "a").await);
    })
    .await;
}

mod own_cluster {
    use futures_util::{Stream, StreamExt};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ListParams, WatchEvent, WatchParams};

    use super::{create, is_there};
    use crate::cluster::{Cluster, client_of, within_limit};

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_client_outlives_the_server() {
        let mut cluster = Cluster::start().unwrap();
        let client = client_of(cluster.kubeconfig(), None).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        create(&maps, "a").await;
        cluster.kill_api_server().unwrap();
        assert!(maps.get("a").await.is_err());
        cluster.restart_api_server().unwrap();
        assert!(is_there(&maps, "a").await);
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_cut_watch_goes_on_where_it_was() {
        let cluster = Cluster::start().unwrap();
        let front = cluster.front().unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client_of(front.kubeconfig(), None).await);
        let start = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let mut watch = Box::pin(maps.watch(&WatchParams::default(), &start).await.unwrap());
        create(&maps, "a").await;
        assert_eq!(within_limit(added(&mut watch)).await.as_deref(), Some("a"));
        front.cut();
        assert_eq!(within_limit(added(&mut watch)).await, None, "the watch must end with its connection");
        create(&maps, "b").await;
        // The history of the server is complete, so a new watch delivers both events.
        let mut again = Box::pin(maps.watch(&WatchParams::default(), &start).await.unwrap());
        for name in ["a", "b"] {
            assert_eq!(within_limit(added(&mut again)).await.as_deref(), Some(name));
        }
    }

    /// Returns the name of the next object that the watch reports as added, or `None` if the watch ended.
    async fn added(
        watch: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
    ) -> Option<String> {
        match watch.next().await {
            Some(Ok(WatchEvent::Added(map))) => map.metadata.name,
            None | Some(Err(kube::Error::ReadEvents(_))) => None,
            Some(other) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_user_without_a_role_is_forbidden() {
        let cluster = Cluster::start().unwrap();
        let client = client_of(cluster.kubeconfig(), Some("nobody")).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        match maps.get("a").await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 403),
            other => panic!("{other:?}"),
        }
    }
}
