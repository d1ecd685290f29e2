//! Like the restart controllers of operators, replaces pods when a ConfigMap or Secret that they mount has changed. For each StatefulSet, an
//! `applier`, whose streams the program creates, writes the versions of the mounted objects to annotations of the pod template. A second controller
//! sets a label of each pod to the zone that a ConfigMap contains; it reconciles all pods every minute.

program! {
    kube_runtime {
        use kube::runtime::{Controller, applier};
    }
    flyball {
        use flyball_kube::{Controller, applier};
    }
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::future::join;
    use futures::stream::{select, unfold};
    use futures::{Stream, StreamExt};
    use k8s_openapi::NamespaceResourceScope;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
    use kube::api::{Patch, PatchParams};
    use kube::runtime::controller::{self, Action, ReconcileRequest, trigger_self, trigger_with};
    use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
    use kube::runtime::utils::StreamBackoff;
    use kube::runtime::watcher::DefaultBackoff;
    use kube::runtime::{WatchStreamExt, watcher};
    use kube::{Api, Client, Resource, ResourceExt};
    use serde::de::DeserializeOwned;
    use serde_json::json;

    type Requests<K> = Result<ReconcileRequest<K>, watcher::Error>;

    /// Runs both controllers until the future is dropped.
    pub async fn run(client: Client) {
        let (sets, writer) = store();
        let selected = watcher::Config::default().labels("restarter=enabled");
        let own = StreamBackoff::new(watcher(Api::<StatefulSet>::default_namespaced(client.clone()), selected), DefaultBackoff::default());
        let own = trigger_self(reflector(writer, own).applied_objects(), ());
        let maps = watcher(Api::<ConfigMap>::default_namespaced(client.clone()), watcher::Config::default());
        let maps = trigger_all(maps.default_backoff().touched_objects(), sets.clone());
        let secrets = watcher(Api::<Secret>::default_namespaced(client.clone()), watcher::Config::default());
        let secrets = trigger_all(secrets.default_backoff().touched_objects(), sets.clone());
        let restarts = applier(
            |set, client| Box::pin(restart(set, client)),
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(client.clone()),
            sets,
            Box::pin(select(own, select(maps, secrets))),
            controller::Config::default(),
        );
        let minutes = unfold((), |()| async { Some((tokio::time::sleep(Duration::from_secs(60)).await, ())) });
        let zones = Controller::new(Api::<Pod>::default_namespaced(client.clone()), watcher::Config::default())
            .trigger_backoff(DefaultBackoff::default())
            .reconcile_all_on(minutes)
            .run(zone, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client));
        join(restarts.for_each(|_| async {}), zones.for_each(|_| async {})).await;
    }

    /// For each change, requests a reconcile of every StatefulSet, because any of them may mount the changed object.
    fn trigger_all<K>(
        changed: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
        sets: Store<StatefulSet>,
    ) -> impl Stream<Item = Requests<StatefulSet>> + Send
    where
        K: Resource<DynamicType = ()> + Send + 'static,
    {
        trigger_with(changed, move |_| sets.state().into_iter().map(|set| ObjectRef::from_obj(&*set)))
    }

    async fn restart(set: Arc<StatefulSet>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let mut versions = BTreeMap::new();
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        for volume in pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten() {
            if let Some(map) = &volume.config_map {
                versions.insert(format!("restarter/configmap.{}", map.name), version::<ConfigMap>(&client, &map.name).await?);
            }
            if let Some(name) = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_ref()) {
                versions.insert(format!("restarter/secret.{name}"), version::<Secret>(&client, name).await?);
            }
        }
        let patch = Patch::Merge(json!({ "spec": { "template": { "metadata": { "annotations": versions } } } }));
        let sets = Api::<StatefulSet>::default_namespaced((*client).clone());
        sets.patch(&set.name_any(), &PatchParams::default(), &patch).await?;
        Ok(Action::await_change())
    }

    async fn version<K>(client: &Client, name: &str) -> Result<Option<String>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let object = Api::<K>::default_namespaced(client.clone()).get_metadata_opt(name).await?;
        Ok(object.and_then(|object| Some(format!("{}/{}", object.uid()?, object.resource_version()?))))
    }

    async fn zone(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let zones = Api::<ConfigMap>::default_namespaced((*client).clone()).get_opt("zones").await?;
        let zone = zones.and_then(|zones| zones.data?.get("zone").cloned());
        if zone.is_some() && pod.labels().get("zone") != zone.as_ref() {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "zone": zone } } }));
            let pods = Api::<Pod>::default_namespaced((*client).clone());
            pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::await_change())
    }
}
