//! Gathers data from many objects, like operators of certificates: the controller writes the certificates of all Secrets with `kind=certificate` to
//! each ConfigMap with `kind=truststore`. The program watches only the metadata of the Secrets. It reports when its store is ready, and ends when its
//! caller requests a shutdown.

program! {
    kube_runtime {
        use kube::runtime::Controller;
        use kube::runtime::reflector::Store;
    }
    flyball {
        use flyball_kube::Controller;
        use flyball_kube::ControllerStore as Store;
    }
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use futures::future::join;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
    use kube::api::{ListParams, PartialObjectMeta, Patch, PatchParams};
    use kube::runtime::controller::Action;
    use kube::runtime::reflector::ObjectRef;
    use kube::runtime::{WatchStreamExt, watcher};
    use kube::{Api, Client, ResourceExt};
    use serde_json::json;

    const CERTIFICATES: &str = "kind=certificate";

    /// Returns a mapper that maps every object to all truststores.
    fn all<K>(stores: Store<ConfigMap>) -> impl Fn(K) -> Vec<ObjectRef<ConfigMap>> + Send + Sync + 'static {
        move |_| stores.state().iter().map(|store| ObjectRef::from_obj(&**store)).collect()
    }

    /// Runs the controller until `shutdown` resolves. When the store is ready, calls `ready` with the number of truststores in it.
    pub async fn run(
        client: Client,
        ready: impl FnOnce(usize) + Send + 'static,
        shutdown: impl Future<Output = ()> + Send + Sync + 'static,
    ) {
        let config = watcher::Config::default;
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let certificates = Api::<Secret>::default_namespaced(client.clone());
        #[expect(deprecated, reason = "published programs call it")]
        let certificates = kube::runtime::metadata_watcher(certificates, config().labels(CERTIFICATES));
        let accounts = Api::<PartialObjectMeta<ServiceAccount>>::default_namespaced(client.clone());
        let controller = Controller::new(maps, config().labels("kind=truststore"));
        let store = controller.store();
        let controller = controller
            .watches_stream(certificates.touched_objects(), all(store.clone()))
            .watches(accounts, config(), all(store.clone()))
            .graceful_shutdown_on(shutdown)
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client))
            .for_each(|_| async {});
        let known = async move {
            if store.wait_until_ready().await.is_ok() {
                ready(store.state().len());
            }
        };
        join(controller, known).await;
    }

    async fn reconcile(store: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
        let secrets = Api::<Secret>::default_namespaced((*client).clone());
        let mut gathered = BTreeMap::new();
        for secret in secrets.list(&ListParams::default().labels(CERTIFICATES)).await? {
            let certificate = secret.data.as_ref().and_then(|data| data.get("certificate"));
            gathered.insert(secret.name_any(), certificate.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()));
        }
        let gone = store.data.iter().flatten().map(|(name, _)| (name.clone(), None));
        let data: BTreeMap<_, _> = gone.chain(gathered).collect();
        let patch = Patch::Merge(json!({ "data": data }));
        let stores = Api::<ConfigMap>::default_namespaced((*client).clone());
        stores.patch(&store.name_any(), &PatchParams::default(), &patch).await?;
        Ok(Action::await_change())
    }
}
