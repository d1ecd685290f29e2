//! The log lines and spans of a controller's reconciles.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Controller;
use flyball_kube_testing::{ApiServer, RequestMatcher};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use tokio::time::sleep;
use tracing::Instrument;
use tracing::subscriber::set_default;

use crate::log_capture::Lines;
use crate::world::{Refused, Runs, World, during, fifo_config, map, pod};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_in_a_span_and_what_has_no_result_is_logged() {
    let lines = Lines::of(|metadata| {
        let target = metadata.target();
        target.starts_with("flyball_kube") || target.starts_with("kube_runtime") || target == module_path!()
    });
    let _default = set_default(lines.clone());
    let program = async {
        let world = World::of(["works", "panics", "hangs"].map(|name| map(&format!("default/{name}"))));
        let config = fifo_config().backoff(SECOND * 100..=SECOND * 100).reconcile_timeout(SECOND);
        let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
            async |map: Arc<ConfigMap>, _: Arc<()>| {
                tracing::info!("called");
                match map.metadata.name.as_deref() {
                    Some("panics") => panic!("a bug in the reconciler"),
                    Some("hangs") => sleep(SECOND * 1000).await,
                    _ => {}
                }
                Ok::<_, Refused>(Action::await_change())
            },
            |_, _, _| unreachable!(),
            Arc::new(()),
        );
        assert_eq!(during(&mut reconciles, SECOND * 20).await.len(), 1);
    };
    program.instrument(tracing::info_span!("program")).await;
    let mut logged = lines.all();
    logged.sort();
    let called = |name: &str| {
        let reasons = "object.reason=object updated object.reasons=1";
        format!("program: reconciling object object.ref=ConfigMap.v1./{name}.default {reasons}: INFO called")
    };
    let expected = [
        "program: ERROR reconciler panicked kind=\"ConfigMap\" object=default/panics panic=\"a bug in the reconciler\"",
        "program: ERROR reconciler was not done in time kind=\"ConfigMap\" object=default/hangs limit=1s",
    ];
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.extend(["hangs", "panics", "works"].map(called));
    assert_eq!(logged, expected);
}

#[tokio::test(start_paused = true)]
async fn the_error_policy_runs_in_the_span_of_the_reconcile() {
    let lines = Lines::of(|metadata| {
        metadata.target().starts_with("kube_runtime") || metadata.target() == module_path!()
    });
    let _default = set_default(lines.clone());
    let world = World::of([map("default/a")]);
    let mut reconciles = Controller::for_shared(&world.informer).with_config(fifo_config()).run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Err::<Action, _>(Refused(None)),
        |_, _, _| {
            tracing::warn!("failed");
            Action::await_change()
        },
        Arc::new(()),
    );
    assert_eq!(during(&mut reconciles, SECOND).await.len(), 1);
    let reasons = "object.reason=object updated object.reasons=1";
    let expected = format!("reconciling object object.ref=ConfigMap.v1./a.default {reasons}: WARN failed");
    assert_eq!(lines.all(), [expected]);
}

/// By default the number of reconciles is not limited.
#[tokio::test(start_paused = true)]
async fn many_reconciles_in_flight_are_warned_of_once_a_minute() {
    let lines = Lines::of_flyball();
    let _default = set_default(lines.clone());
    let world = World::of((0..300).map(|number| map(&format!("default/{number}"))));
    let controller = Controller::for_shared(&world.informer).with_config(fifo_config());
    let monitor = controller.monitor();
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| {
            sleep(SECOND * 600).await;
            Ok::<_, Refused>(Action::await_change())
        },
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    for second in 0..100 {
        during(&mut reconciles, SECOND).await;
        world.server.put(map(&format!("default/late-{second}")));
    }
    assert_eq!(monitor.stats().map(|counts| counts.leased), Some(399));
    let warnings = lines.with("WARN");
    let warning = |running, oldest| {
        format!(
            "WARN many reconciles are in flight; Config::concurrency bounds them kind=\"ConfigMap\" running={running} oldest={oldest}"
        )
    };
    assert_eq!(warnings, [warning(256, "0ns"), warning(360, "60s")]);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_logged_and_so_is_its_recovery() {
    let lines = Lines::of_flyball();
    let _default = set_default(lines.clone());
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Secret>();
    server.put(&map("default/a"));
    let forbidden = Status::failure("secrets is forbidden", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::any().resource::<Secret>(), 10, forbidden);
    let all = watcher::Config::default;
    let controller = Controller::new(Api::<ConfigMap>::all(server.client()), all())
        .owns(Api::<Secret>::all(server.client()), all());
    let monitor = controller.monitor();
    // The test ignores the errors in the stream of results.
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );

    during(&mut reconciles, SECOND * 30).await;
    assert_eq!(monitor.ready(), Ok(()), "the main kind must be reconciled");
    let caches = monitor.caches();
    assert_eq!([&*caches[0].kind, &*caches[1].kind], ["ConfigMap", "Secret"]);
    assert_eq!((caches[0].synced, caches[0].failures, &caches[0].failure), (true, 0, &None));
    let failing = caches[1].failure.as_ref().unwrap();
    assert_eq!(
        (caches[1].synced, failing.request, failing.consecutive_failures),
        (false, "list", caches[1].failures)
    );
    assert!(failing.message.contains("secrets is forbidden"), "{failing:?}");
    let warnings = lines.with("WARN");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for part in [
        "kind=\"Secret\"",
        "request=\"list\"",
        "secrets is forbidden",
        "failures=1",
        "retry_in=",
        "until a retry succeeds",
    ] {
        assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
    }
    assert!(warnings[1].contains("controller=\"ConfigMap\" missing=\"Secret\""), "{}", warnings[1]);

    during(&mut reconciles, SECOND * 600).await;
    let caches = monitor.caches();
    assert_eq!((caches[1].synced, caches[1].failures, &caches[1].failure), (true, 10, &None));
    let logged = lines.with("WARN");
    assert!((3..=7).contains(&logged.len()), "once a minute at most: {logged:?}");
    let logged = lines.with("INFO");
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert!(
        logged.iter().any(|line| line.contains("the cache is up to date again kind=\"Secret\" failures=10"))
    );
    assert!(logged.iter().any(|line| line.contains("filled=\"Secret\"")));
}

/// The span contains the reason as kube-runtime formats it. If several reasons were coalesced into one reconcile, it contains the first reason and
/// their number.
#[tokio::test(start_paused = true)]
async fn the_span_of_a_reconcile_says_why() {
    let lines = Lines::of(|metadata| {
        metadata.target() == "kube_runtime::controller" || metadata.target() == module_path!()
    });
    let _default = set_default(lines.clone());
    let world = World::of([map("default/a")]);
    let pods = World::of([pod("default/of-a", &["a"])]);
    let everything = futures_util::stream::once(sleep(SECOND * 60));
    let config = fifo_config().debounce(SECOND);
    let runs = Runs::new();
    let mut reconciles = Controller::for_shared(&world.informer)
        .owns_shared(&pods.informer)
        .reconcile_all_on(everything)
        .with_config(config)
        .run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                tracing::info!("called");
                match runs.record(&*map) {
                    2 => Err(Refused(None)),
                    3 => Ok(Action::requeue(SECOND * 10)),
                    _ => Ok(Action::await_change()),
                }
            },
            |_, _, _| Action::requeue(SECOND * 5),
            runs.clone(),
        );
    during(&mut reconciles, SECOND * 5).await;
    pods.server.put(pod("default/of-a", &["a"]));
    during(&mut reconciles, SECOND / 10).await;
    for _ in 0..3 {
        world.server.put(map("default/a"));
        during(&mut reconciles, SECOND / 10).await;
    }
    during(&mut reconciles, SECOND * 100).await;
    let logged: Vec<String> = lines.with("called");
    let why = |reason, count| {
        format!(
            "reconciling object object.ref=ConfigMap.v1./a.default object.reason={reason} object.reasons={count}: INFO called"
        )
    };
    let expected = [
        why("object updated", 2),
        why("related object updated: Pod default/of-a", 4),
        why("error policy requested retry", 1),
        why("reconciler requested retry", 1),
        why("bulk reconcile requested", 1),
    ];
    assert_eq!(logged, expected);
}
