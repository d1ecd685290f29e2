//! Starts the controllers of flyball and of kube-runtime. The code differs only in the crate from which it imports `Controller` and `Config`.

use std::convert::Infallible;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::controller::Action;
use kube::runtime::watcher;

use crate::Party;

const CONCURRENCY: u16 = 10;

/// The body of a reconcile. It awaits nothing.
pub(crate) trait Work: Send + Sync + 'static {
    fn reconcile(&self, object: &ConfigMap);
}

/// Starts a controller in its own task. It runs until the process ends.
pub(crate) fn start<W: Work>(party: Party, api: Api<ConfigMap>, work: Arc<W>) {
    macro_rules! run {
        ($controller:path, $config:path) => {{
            use {$config as Config, $controller as Controller};
            let config = Config::default().concurrency(CONCURRENCY);
            let controller = Controller::new(api, watcher::Config::default()).with_config(config);
            let reconciled = controller.run(reconcile, error_policy, work);
            tokio::spawn(reconciled.for_each(async |result| drop(result.expect("nothing fails"))));
        }};
    }
    match party {
        Party::Ours => run!(flyball_kube::Controller, flyball_kube::Config),
        Party::Kube => run!(kube::runtime::Controller, kube::runtime::Config),
    }
}

async fn reconcile<W: Work>(object: Arc<ConfigMap>, work: Arc<W>) -> Result<Action, Infallible> {
    work.reconcile(&object);
    Ok(Action::await_change())
}

fn error_policy<W: Work>(_: Arc<ConfigMap>, error: &Infallible, _: Arc<W>) -> Action {
    match *error {}
}
