//! A panic in an informer of the controller, caused by the type that the informer decodes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Controller;
use flyball_kube_testing::ApiServer;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use kube::runtime::{controller::Action, watcher};
use kube::{Api, Resource};
use serde::{Deserialize, Deserializer};

use crate::world::{Refused, during, map, outcomes};

const SECOND: Duration = Duration::from_secs(1);

/// A ConfigMap whose decoding panics if its data contains a `bomb`.
#[derive(Clone, Debug, Deserialize)]
struct Fragile {
    metadata: ObjectMeta,
    #[expect(dead_code, reason = "the field is only decoded")]
    #[serde(default)]
    data: Harmless,
}

#[derive(Clone, Debug, Default)]
struct Harmless;

impl<'de> Deserialize<'de> for Harmless {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let data = BTreeMap::<String, String>::deserialize(from)?;
        assert!(!data.contains_key("bomb"), "a bug in the type");
        Ok(Self)
    }
}

impl Resource for Fragile {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn bomb() -> ConfigMap {
    ConfigMap { data: Some([("bomb".to_owned(), "lit".to_owned())].into()), ..map("default/bomb") }
}

/// As in kube-runtime, a panic of the informer is propagated to the stream: a controller must not continue with a cache that is no longer updated.
#[tokio::test(start_paused = true)]
async fn it_ends_with_the_panic_of_its_informer() {
    // The case of a panic at the start runs 20 times, because it is random which of two things the controller detects first: the panic, or that the
    // cache will never sync.
    for at_the_start in [[true; 20].as_slice(), &[false]].concat() {
        let server = ApiServer::new();
        server.register::<ConfigMap>();
        server.put(&map("default/a"));
        if at_the_start {
            server.put(&bomb());
        }
        let api = Api::<Fragile>::all(server.client());
        let mut reconciles = Controller::new(api, watcher::Config::default()).run(
            async |_: Arc<Fragile>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
            |_, _, _| unreachable!(),
            Arc::new(()),
        );
        if !at_the_start {
            assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
            server.put(&bomb());
        }
        let ended = tokio::spawn(async move { during(&mut reconciles, SECOND * 60).await.len() }).await;
        let panic = ended.expect_err("the stream panics").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug in the type"));
    }
}
