//! Runs programs as processes, on both engines. The tests kill, terminate and replace processes, and let a list expire. At the end the same objects
//! must exist for both engines.

mod own_cluster {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    use e2e::{Cluster, Process};
    use futures::future::{join, join_all};
    use hyper::Method;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::ListParams;
    use kube::{Client, ResourceExt};
    use serde_json::{Value, json};
    use tokio::sync::{Barrier, Mutex};
    use tokio::task::block_in_place;
    use tokio::time::Instant;

    use crate::cluster::{client_of_fresh_namespace, client_without_retries, cluster, until};
    use crate::life::{Kind, Left, Life};
    use crate::proxy::{Exchange, Hold, Proxy};

    /// An engine, and the namespace in which its processes run.
    struct Play<'a> {
        engine: &'static str,
        kubeconfig: &'a Path,
        life: Life,
    }

    /// Runs the scenario with both engines at the same time. Returns the objects that exist at the end, which must be the same for both engines.
    async fn on_both(kubeconfig: &Path, scenario: impl AsyncFn(&Play<'_>)) -> Left {
        let by = async |engine| {
            let client = client_of_fresh_namespace(kubeconfig).await;
            let play = Play { engine, kubeconfig, life: Life::new(client, Duration::ZERO) };
            scenario(&play).await;
            play.life.left().await
        };
        let (kubes, ours) = join(by("kube-runtime"), by("flyball")).await;
        assert_eq!(ours, kubes);
        ours
    }

    impl Play<'_> {
        fn namespace(&self) -> String {
            self.life.client().default_namespace().to_owned()
        }

        async fn admin(&self) -> Client {
            client_without_retries(self.kubeconfig, "admin", &self.namespace()).await
        }

        async fn proxy(&self, hold: Option<Hold>) -> Proxy {
            Proxy::start(self.admin().await, hold).await
        }

        /// Starts a program whose requests go through `proxy`.
        fn start(&self, program: &str, proxy: &Proxy) -> Process {
            let namespace = self.namespace();
            let name = format!("{namespace}-{}", proxy.port());
            let file = |ending: &str| self.kubeconfig.with_file_name(format!("{name}.{ending}"));
            let context =
                json!({"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}});
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": proxy.url()}}],
                "contexts": [context], "users": [{"name": "u", "user": {}}],
            });
            std::fs::write(file("kubeconfig"), kubeconfig.to_string()).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_program"));
            command.args([self.engine, program]).env("KUBECONFIG", file("kubeconfig"));
            Process::start(&command, file("log")).unwrap()
        }

        async fn all<K: Kind>(&self) -> BTreeMap<String, K> {
            let all = self.life.api::<K>().list(&ListParams::default()).await.unwrap();
            all.into_iter().map(|object| (object.name_any(), object)).collect()
        }

        /// Returns the versions of all ConfigMaps. A write that changes an object changes its version.
        async fn versions(&self) -> BTreeMap<String, Option<String>> {
            let maps = self.all::<ConfigMap>().await;
            maps.into_iter().map(|(name, map)| (name, map.resource_version())).collect()
        }

        /// Sends SIGTERM to the process, and waits until it has ended.
        async fn stop(&self, process: &Process) {
            process.terminate().unwrap();
            self.stopped(process).await;
        }

        /// Waits until a process that has received SIGTERM ends, and asserts that it ends within ten seconds and with exit code 0.
        async fn stopped(&self, process: &Process) {
            let begun = Instant::now();
            until(async || process.exit_status().unwrap().is_some()).await;
            let status = process.exit_status().unwrap().expect("it has ended");
            assert_eq!(status.code(), Some(0), "{}: {status}, {}", self.engine, process.output());
            assert!(begun.elapsed() < Duration::from_secs(10), "{}: {:?}", self.engine, begun.elapsed());
        }
    }

    fn generated(data: &str) -> Value {
        json!({"metadata": {"labels": {"generate": "true"}}, "stringData": {"k": data}})
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn killed_in_the_middle_and_started_again_it_finishes() {
        const MAPS: usize = 40;
        let left = on_both(cluster().kubeconfig(), async |play| {
            let life = &play.life;
            join_all((0..MAPS).map(async |n| {
                life.create::<ConfigMap>(&format!("map-{n}"), json!({"data": {"k": n.to_string()}})).await;
            }))
            .await;

            // The process is killed while the proxy holds its create requests back, so the server never receives these requests.
            let proxy = play.proxy(Some(Hold::requests(Method::POST, "/secrets", 10))).await;
            let process = play.start("secret_syncer", &proxy);
            until(async || {
                let maps = play.all::<ConfigMap>().await;
                let finalized = maps.values().all(|map| !map.finalizers().is_empty());
                finalized && proxy.held() > 0 && play.all::<Secret>().await.len() == 10
            })
            .await;
            process.kill();

            // The process is killed after the server has executed a patch, and before the program receives the response.
            let proxy = play.proxy(Some(Hold::responses(Method::PATCH, "/secrets/", 10))).await;
            let process = play.start("secret_syncer", &proxy);
            until(async || proxy.held() > 0).await;
            process.kill();
            let secrets = play.all::<Secret>().await;
            assert!(secrets.values().any(|secret| secret.data.is_some()), "{}: {secrets:?}", play.engine);

            // Now objects are deleted while no process is running. The next process is killed after it has cleaned up for an object, but before it
            // has removed the object's finalizer.
            for n in 0..MAPS / 2 {
                life.delete::<ConfigMap>(&format!("map-{n}")).await;
            }
            let proxy = play.proxy(Some(Hold::responses(Method::DELETE, "/secrets/", 5))).await;
            let process = play.start("secret_syncer", &proxy);
            until(async || proxy.held() > 0).await;
            process.kill();
            let (maps, secrets) = (play.all::<ConfigMap>().await, play.all::<Secret>().await);
            let half = |(name, map): (&String, &ConfigMap)| {
                map.metadata.deletion_timestamp.is_some() && !secrets.contains_key(name)
            };
            assert!(maps.iter().any(half), "{}: {maps:?}", play.engine);

            let proxy = play.proxy(None).await;
            let _process = play.start("secret_syncer", &proxy);
            until(async || {
                let (maps, secrets) = (play.all::<ConfigMap>().await, play.all::<Secret>().await);
                maps.len() == MAPS / 2
                    && maps.keys().eq(secrets.keys())
                    && secrets.values().all(|secret| secret.data.is_some())
            })
            .await;
        })
        .await;
        assert_eq!(left.len(), MAPS, "{left:#?}");
        for n in MAPS / 2..MAPS {
            assert_eq!(left[&format!("ConfigMap/map-{n}")]["data"], json!({"k": n.to_string()}));
            assert!(left.contains_key(&format!("Secret/map-{n}")));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_shutdown_under_a_backlog_leaves_what_waits_to_the_next_process() {
        const SECRETS: usize = 40;
        let left = on_both(cluster().kubeconfig(), async |play| {
            let life = &play.life;
            join_all((0..SECRETS).map(async |n| {
                life.create::<Secret>(&format!("secret-{n}"), generated(&n.to_string())).await;
            }))
            .await;

            // The program runs at most two reconciles at once. The proxy holds the requests of both back, so two reconciles are in flight at the
            // shutdown.
            let proxy = play.proxy(Some(Hold::requests(Method::POST, "/configmaps", 5))).await;
            let process = play.start("config_map_generator", &proxy);
            until(async || proxy.held() == 2 && play.all::<ConfigMap>().await.len() == 5).await;
            process.terminate().unwrap();
            until(async || process.output().contains("press ctrl+c again")).await;
            assert!(process.exit_status().unwrap().is_none(), "{}: reconciles are in flight", play.engine);
            proxy.release();
            play.stopped(&process).await;
            // The two reconciles in flight must be finished. Two further reconciles may have started if the process was slow between its log line and
            // the shutdown. The other objects are left to the next process.
            let finished = play.all::<ConfigMap>().await.len();
            assert!((7..=9).contains(&finished), "{}: {finished}", play.engine);

            let proxy = play.proxy(None).await;
            let process = play.start("config_map_generator", &proxy);
            until(async || play.all::<ConfigMap>().await.len() == SECRETS).await;
            play.stop(&process).await;
        })
        .await;
        assert_eq!(left.len(), 2 * SECRETS, "{left:#?}");
        for n in 0..SECRETS {
            assert_eq!(left[&format!("ConfigMap/secret-{n}")]["data"], json!({"k": n.to_string()}));
        }
    }

    /// Returns the largest number of concurrent writes of one object that the process behind `proxy` had in flight.
    fn writes_at_once(proxy: &Proxy) -> usize {
        let mut objects = BTreeMap::<_, Vec<_>>::new();
        for exchange in proxy.exchanges().into_iter().filter(|exchange| exchange.method != Method::GET) {
            let ended = exchange.answered.map_or_else(Instant::now, |(answered, _)| answered);
            objects.entry(exchange.target).or_default().push((exchange.begun, ended));
        }
        let at_once = |writes: &Vec<(Instant, Instant)>| {
            let during =
                |at: Instant| writes.iter().filter(|(begun, ended)| *begun <= at && at < *ended).count();
            writes.iter().map(|(begun, _)| during(*begun)).max()
        };
        objects.values().filter_map(at_once).max().unwrap_or_default()
    }

    /// Returns whether the process behind `proxy` is idle: all its requests are answered, and the last response is older than 200 ms.
    fn is_quiet(proxy: &Proxy) -> bool {
        const IDLE: Duration = Duration::from_millis(200);
        let is_past = |exchange: &Exchange| exchange.answered.is_some_and(|(at, _)| at.elapsed() > IDLE);
        proxy.exchanges().iter().all(is_past)
    }

    fn certificate(data: &str) -> Value {
        json!({"metadata": {"labels": {"kind": "certificate"}}, "stringData": {"certificate": data}})
    }

    /// A process of the program `truststores`, and the proxy that records its requests.
    struct Replica {
        process: Process,
        proxy: Proxy,
    }

    impl Play<'_> {
        async fn replica(&self) -> Replica {
            let proxy = self.proxy(None).await;
            Replica { process: self.start("truststores", &proxy), proxy }
        }

        /// Waits until all truststores have these certificates, and all replicas are idle. Both are necessary: there is no leader election, so a
        /// replica that has read the old certificates can write them after a different replica has written the new ones.
        async fn converged(&self, replicas: &[Replica], certificates: Value) {
            until(async || {
                replicas.iter().all(|replica| is_quiet(&replica.proxy))
                    && self.all::<ConfigMap>().await.values().all(|map| json!(map.data) == certificates)
            })
            .await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_rolling_update_of_two_replicas_converges() {
        const STORES: usize = 10;
        let left = on_both(cluster().kubeconfig(), async |play| {
            let life = &play.life;
            for n in 0..STORES {
                let labels = json!({"metadata": {"labels": {"kind": "truststore"}}});
                life.create::<ConfigMap>(&format!("store-{n}"), labels).await;
            }
            for name in ["a", "b"] {
                life.create::<Secret>(name, certificate("0")).await;
            }
            let mut replicas = vec![play.replica().await, play.replica().await];
            play.converged(&replicas, json!({"a": "0", "b": "0"})).await;

            let mut stopped = Vec::new();
            for round in ["1", "2"] {
                let before = play.versions().await;
                let new = play.replica().await;
                until(async || new.process.output().contains(&format!("ready: {STORES} truststores"))).await;
                until(async || {
                    let exchanges = new.proxy.exchanges();
                    let patched =
                        |one: &&Exchange| one.is(&Method::PATCH, "/configmaps/") && one.status() == Some(200);
                    exchanges.iter().filter(patched).count() >= STORES
                })
                .await;
                assert_eq!(play.versions().await, before, "{}: a new process changes nothing", play.engine);
                replicas.push(new);

                // One Secret changes while all three processes run; a second one changes while one of the processes shuts down.
                life.merge::<Secret>("a", certificate(round)).await;
                let old = replicas.remove(0);
                old.process.terminate().unwrap();
                life.merge::<Secret>("b", certificate(round)).await;
                play.stopped(&old.process).await;
                stopped.push(old);
                play.converged(&replicas, json!({"a": round, "b": round})).await;
            }

            // This deletion is processed by the two new processes, because the first two have ended. No process had two concurrent writes of one
            // object in flight.
            life.delete::<Secret>("b").await;
            play.converged(&replicas, json!({"a": "2"})).await;
            for replica in &replicas {
                play.stop(&replica.process).await;
            }
            let all: Vec<_> = stopped.into_iter().chain(replicas).collect();
            let at_once: Vec<_> = all.iter().map(|replica| writes_at_once(&replica.proxy)).collect();
            assert_eq!(at_once, [1; 4], "{}", play.engine);
        })
        .await;
        assert_eq!(left.len(), STORES + 1, "{left:#?}");
        for n in 0..STORES {
            assert_eq!(left[&format!("ConfigMap/store-{n}")]["data"], json!({"a": "2"}));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_list_whose_next_page_is_expired_starts_again() {
        const SECRETS: usize = 20;
        const PAGE_SIZE: usize = 5;
        let cluster = block_in_place(Cluster::start).unwrap();
        let kubeconfig = cluster.kubeconfig().to_owned();
        let cluster = Mutex::new(cluster);
        let engines = Barrier::new(2);
        let left = on_both(&kubeconfig, async |play| {
            let life = &play.life;
            for n in 0..SECRETS {
                life.create::<Secret>(&format!("secret-{n:02}"), generated("0")).await;
            }
            let hold = Hold::requests(Method::GET, "continue=", 1);
            let proxy = Proxy::with_page_size(play.admin().await, PAGE_SIZE, Some(hold)).await;
            let process = play.start("config_map_generator", &proxy);
            until(async || proxy.held() > 0).await;

            // The program has received two pages of the list. Now objects change, both on these pages and on pages that the program has not received
            // yet.
            for name in ["secret-00", "secret-19"] {
                life.delete::<Secret>(name).await;
            }
            for name in ["secret-01", "secret-18"] {
                life.merge::<Secret>(name, generated("1")).await;
            }
            for name in ["secret", "secret-20"] {
                life.create::<Secret>(name, generated("0")).await;
            }
            if engines.wait().await.is_leader() {
                let mut cluster = cluster.lock().await;
                block_in_place(|| cluster.expire_history()).unwrap();
            }
            engines.wait().await;
            proxy.release();

            let is_done = async || {
                let (secrets, maps) = (play.all::<Secret>().await, play.all::<ConfigMap>().await);
                let text = |secret: &Secret| secret.data.as_ref().map(|data| data["k"].0.clone());
                let generated =
                    |map: &ConfigMap| map.data.as_ref().map(|data| data["k"].clone().into_bytes());
                let secrets = secrets.iter().map(|(name, secret)| (name, text(secret)));
                secrets.eq(maps.iter().map(|(name, map)| (name, generated(map))))
            };
            until(is_done).await;
            let lists =
                proxy.exchanges().into_iter().filter(|exchange| exchange.is(&Method::GET, "/secrets?"));
            let mut lists = lists.filter(|list| !list.target.contains("watch="));
            let expired = lists.find(|list| list.status() == Some(410)).expect("a page is expired");
            assert!(expired.target.contains("continue="), "{}: {expired:?}", play.engine);
            let again = lists.next().expect("it lists again");
            // kube-runtime requests the new list in pages again. flyball requests all objects in one response, as client-go does.
            assert_eq!(
                again.target.contains("limit="),
                play.engine == "kube-runtime",
                "{}: {again:?}",
                play.engine
            );
            // After the new list, a watch is started, which delivers this change.
            life.merge::<Secret>("secret-10", generated("2")).await;
            until(is_done).await;
            play.stop(&process).await;
        })
        .await;
        assert_eq!(left.len(), 2 * SECRETS, "{left:#?}");
        assert!(!left.contains_key("ConfigMap/secret-00"));
        assert_eq!(left["ConfigMap/secret-10"]["data"], json!({"k": "2"}));
    }
}
