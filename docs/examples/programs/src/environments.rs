//! A controller of objects that consist of several parts, as in operators of databases. Predicates filter the streams of the owned objects, so that
//! only relevant changes of the parts cause a reconcile. The objects are ConfigMaps with `kind=environment`; the parts of each are a Deployment, a
//! Service and a Secret with the same name.

program! {
    use std::fmt::Debug;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::NamespaceResourceScope;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
    use kube::api::{Patch, PatchParams, PostParams};
    use kube::runtime::controller::Action;
    use kube::runtime::{Predicate, WatchStreamExt, predicates, watcher};
    use kube::{Api, Client, Resource, ResourceExt};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json};

    /// Runs the controller until the future is dropped.
    pub async fn run(client: Client) {
        let config = watcher::Config::default;
        let deployments = watcher(Api::<Deployment>::default_namespaced(client.clone()), config())
            .touched_objects()
            .predicate_filter(predicates::generation, Default::default());
        let services = watcher(Api::<Service>::default_namespaced(client.clone()), config())
            .touched_objects()
            .predicate_filter(predicates::resource_version, Default::default());
        let secrets = watcher(Api::<Secret>::default_namespaced(client.clone()), config())
            .touched_objects()
            .predicate_filter(predicates::labels.combine(predicates::annotations), Default::default());
        Controller::new(Api::<ConfigMap>::default_namespaced(client.clone()), config().labels("kind=environment"))
            .owns_stream(deployments)
            .owns_stream(services)
            .owns_stream(secrets)
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client))
            .for_each(|_| async {})
            .await;
    }

    async fn reconcile(environment: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let replicas: i32 = environment.data.as_ref().and_then(|data| data.get("replicas")?.parse().ok()).unwrap_or(1);
        let app = json!({ "app": environment.name_any() });
        let template = json!({ "metadata": { "labels": app }, "spec": { "containers": [{ "name": "main", "image": "example" }] } });
        let spec = json!({ "replicas": replicas, "selector": { "matchLabels": app }, "template": template });
        let deployment: Deployment = part(&environment, &client, json!({ "spec": spec })).await?;
        part::<Service>(&environment, &client, json!({ "spec": { "selector": app, "ports": [{ "port": 80 }] } })).await?;
        part::<Secret>(&environment, &client, json!({ "metadata": { "labels": app }, "stringData": { "password": "secret" } })).await?;

        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0).to_string();
        if environment.annotations().get("ready") != Some(&ready) {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "ready": ready } } }));
            let environments = Api::<ConfigMap>::default_namespaced((*client).clone());
            environments.patch(&environment.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    }

    /// Creates or patches a part.
    async fn part<K>(environment: &ConfigMap, client: &Client, wanted: Value) -> Result<K, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let parts = Api::<K>::default_namespaced(client.clone());
        let name = environment.name_any();
        if parts.get_opt(&name).await?.is_some() {
            return parts.patch(&name, &PatchParams::default(), &Patch::Merge(wanted)).await;
        }
        let mut object: K = from_value(wanted).map_err(kube::Error::SerdeError)?;
        object.meta_mut().name = Some(name);
        object.meta_mut().owner_references = Some(environment.controller_owner_ref(&()).into_iter().collect());
        parts.create(&PostParams::default(), &object).await
    }
}
