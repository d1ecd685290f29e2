//! A program that may not read what it owns, until somebody lets it.

mod own_cluster {
    use std::time::Duration;

    use example_programs::config_map_generator;
    use futures::future::BoxFuture;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use kube::api::PostParams;
    use kube::{Api, Client};
    use serde::Serialize;
    use serde_json::{Value, from_value, json};
    use tokio::time::{sleep, timeout};

    use crate::cluster::{Real, as_nobody};
    use crate::life::{Kind, World};

    async fn create<K: Kind + Serialize>(client: &Client, object: Value) {
        let object: K = from_value(object).unwrap();
        Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &object).await.unwrap();
    }

    /// Lets the user `nobody` do everything with a resource.
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
        for run in programs {
            let client = Real.client().await;
            allow(&client, "secrets").await;
            let running = tokio::spawn(run(as_nobody(&client).await));
            let labels = json!({"generate": "true"});
            create::<Secret>(&client, json!({"metadata": {"name": "a", "labels": labels}})).await;
            sleep(Duration::from_secs(5)).await;
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            assert!(maps.get_opt("a").await.unwrap().is_none(), "the role does not let it");
            assert!(!running.is_finished());

            allow(&client, "configmaps").await;
            let made = async {
                while maps.get_opt("a").await.unwrap().is_none() {
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(Duration::from_secs(60), made).await.expect("it is allowed now");
            running.abort();
        }
    }
}
