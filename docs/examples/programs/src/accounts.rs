//! An operator of an identity provider, like kaniop; its objects are accounts and servers. The program uses kube-runtime's stores in its context and
//! in function signatures, and a mapper that reads a store. An account is a ConfigMap with `kind=account`. It names its server, a Secret with
//! `kind=server`, and the controller creates its credentials, a Secret with `kind=credentials`.

program! {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
    use kube::runtime::controller::{self, Action};
    use kube::runtime::reflector::{self, ObjectRef, Store};
    use kube::runtime::{WatchStreamExt, watcher};
    use kube::{Api, Client, Resource, ResourceExt};

    struct Context {
        client: Client,
        servers: Store<Secret>,
        credentials: Store<Secret>,
    }

    /// The reason why a reconcile of an account failed.
    #[derive(Debug)]
    pub enum Error {
        /// The server of the account is not in the store.
        NoServer,
        /// A request failed.
        Request(kube::Error),
    }

    impl std::fmt::Display for Error {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl std::error::Error for Error {}

    fn server_of(account: &ConfigMap) -> Option<ObjectRef<Secret>> {
        let server = account.data.as_ref()?.get("server")?;
        Some(ObjectRef::new(server).within(&account.namespace()?))
    }

    /// Returns a mapper that maps a server to the accounts that name it.
    pub fn accounts_of(accounts: Store<ConfigMap>) -> impl Fn(Secret) -> Vec<ObjectRef<ConfigMap>> + Send + Sync + 'static {
        move |server| {
            let server = Some(ObjectRef::from_obj(&server));
            let accounts = accounts.state_filter(|account| server_of(account) == server);
            accounts.iter().map(|account| ObjectRef::from_obj(&**account)).collect()
        }
    }

    /// Runs the controller until the future is dropped.
    pub async fn run(client: Client) {
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        let of_kind = |kind: &str| watcher::Config::default().labels(&format!("kind={kind}"));
        let (accounts, account_writer) = reflector::store();
        let (servers, server_writer) = reflector::store();
        let (credentials, credential_writer) = reflector::store();
        let changed_accounts = watcher(maps, of_kind("account")).default_backoff().reflect(account_writer).touched_objects();
        let changed_servers = watcher(secrets.clone(), of_kind("server")).default_backoff().reflect(server_writer).touched_objects();
        let changed_credentials = watcher(secrets, of_kind("credentials")).default_backoff().reflect(credential_writer).touched_objects();
        Controller::for_stream(changed_accounts, accounts.clone())
            .with_config(controller::Config::default().debounce(Duration::from_millis(500)))
            .owns_stream(changed_credentials)
            .watches_stream(changed_servers, accounts_of(accounts))
            .run(reconcile, error_policy, Arc::new(Context { client, servers, credentials }))
            .for_each(|_| async {})
            .await;
    }

    async fn reconcile(account: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
        let server = server_of(&account).and_then(|server| context.servers.get(&server)).ok_or(Error::NoServer)?;
        let secrets = Api::<Secret>::default_namespaced(context.client.clone());
        let name = format!("{}-credentials", account.name_any());
        let wanted = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some([("kind".to_owned(), "credentials".to_owned())].into()),
                owner_references: Some(account.controller_owner_ref(&()).into_iter().collect()),
                ..ObjectMeta::default()
            },
            data: server.data.clone(),
            ..Secret::default()
        };
        let reference = ObjectRef::new(&name).within(&account.namespace().unwrap_or_default());
        match context.credentials.get(&reference) {
            None => drop(secrets.create(&PostParams::default(), &wanted).await.map_err(Error::Request)?),
            Some(there) if there.data != wanted.data => {
                let patch = Patch::Merge(serde_json::json!({ "data": wanted.data }));
                secrets.patch(&name, &PatchParams::default(), &patch).await.map_err(Error::Request)?;
            }
            Some(_) => {}
        }
        Ok(Action::requeue(Duration::from_secs(3600)))
    }

    fn error_policy(_: Arc<ConfigMap>, _: &Error, _: Arc<Context>) -> Action {
        Action::requeue(Duration::from_secs(1))
    }
}
