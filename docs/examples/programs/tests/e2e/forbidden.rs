//! Runs a program that is not allowed to read the objects that it owns, until a role allows it.

mod own_cluster {
    use example_programs::config_map_generator;
    use futures::future::{BoxFuture, join_all};
    use hyper::Method;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use kube::api::{DeleteParams, PostParams};
    use kube::{Api, Client, Config};
    use serde::Serialize;
    use serde_json::{Value, from_value, json};

    use crate::cluster::{Real, client_without_retries, cluster, until};
    use crate::life::{Kind, World};
    use crate::proxy::{Exchange, Proxy};

    async fn create<K: Kind + Serialize>(client: &Client, object: Value) {
        let object: K = from_value(object).unwrap();
        Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &object).await.unwrap();
    }

    /// Creates a role that allows the user `nobody` all requests for `resource`.
    async fn allow(client: &Client, resource: &str) {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["*"]}]);
        create::<Role>(client, json!({"metadata": {"name": resource}, "rules": rules})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resource});
        let nobody = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}]);
        let binding = json!({"metadata": {"name": resource}, "roleRef": role, "subjects": nobody});
        create::<RoleBinding>(client, binding).await;
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_kind_that_is_forbidden_is_taken_up_when_it_is_allowed() {
        let programs: [fn(Client) -> BoxFuture<'static, ()>; 2] = [
            |client| Box::pin(config_map_generator::kube_runtime::run(client)),
            |client| Box::pin(config_map_generator::flyball::run(client)),
        ];
        join_all(programs.map(async |run| {
            let client = Real.client().await;
            let namespace = client.default_namespace();
            allow(&client, "secrets").await;
            let nobody = client_without_retries(cluster().kubeconfig(), "nobody", namespace).await;
            let proxy = Proxy::start(nobody, None).await;
            let mut config = Config::new(proxy.url().parse().unwrap());
            namespace.clone_into(&mut config.default_namespace);
            let running = tokio::spawn(run(Client::try_from(config).unwrap()));
            let labels = json!({"generate": "true"});
            create::<Secret>(&client, json!({"metadata": {"name": "a", "labels": labels}})).await;
            // Until the role exists, the server refuses the lists and watches of the owned objects, and the reads of a single object.
            let answers = |part: &str, status| {
                let exchanges = proxy.exchanges();
                let such = |one: &&Exchange| one.is(&Method::GET, part) && one.status() == Some(status);
                exchanges.iter().filter(such).count()
            };
            until(async || answers("/configmaps?", 403) > 1 && answers("/configmaps/a", 403) > 1).await;
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            assert!(maps.get_opt("a").await.unwrap().is_none(), "the role does not allow the creation");
            assert!(!running.is_finished());

            allow(&client, "configmaps").await;
            until(async || maps.get_opt("a").await.unwrap().is_some()).await;
            // Both engines miss a deletion that happens before the watch is open again, so the test deletes the object after that.
            until(async || answers("/configmaps?&watch=", 200) > 0).await;
            maps.delete("a", &DeleteParams::default()).await.unwrap();
            until(async || maps.get_opt("a").await.unwrap().is_some()).await;
            running.abort();
        }))
        .await;
    }
}
