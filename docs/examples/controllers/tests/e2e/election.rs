//! Of several processes of one program, one works; whatever ends it, another goes on.

mod own_cluster {
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::api::{ListParams, Patch, PatchParams, PostParams};
    use kube::{Api, Client};
    use serde_json::{from_value, json};
    use tokio::time::Instant;

    use crate::process::Process;
    use crate::world::{namespace, until};

    const LEASE: &str = "flyball-example-endpointslice";
    /// A lease that lasts longer than this test: nobody waits for its end.
    const LONG: [&str; 2] = ["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"];
    const SHORT: [&str; 2] = ["--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=4s"];

    struct Play {
        client: Client,
        namespace: String,
    }

    impl Play {
        fn start(&self, name: &str, periods: [&str; 2]) -> Process {
            let mut arguments = vec!["--leader-elect", "--leader-elect-namespace", &self.namespace];
            arguments.push("--leader-elect-retry-period=500ms");
            arguments.extend(periods);
            Process::start(env!("CARGO_BIN_EXE_endpointslice"), name, &arguments)
        }

        fn leases(&self) -> Api<Lease> {
            Api::namespaced(self.client.clone(), &self.namespace)
        }

        async fn leader_is(&self, name: &str) -> bool {
            let lease = self.leases().get_opt(LEASE).await.unwrap();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            holder.starts_with(&format!("{name}_"))
        }

        async fn create_service(&self, name: &str) {
            let spec = json!({"selector": {"app": name}, "ports": [{"port": 80}]});
            let service: Service = from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
            let services = Api::namespaced(self.client.clone(), &self.namespace);
            services.create(&PostParams::default(), &service).await.unwrap();
        }

        /// Whether the program has done its work on a service.
        async fn is_done(&self, service: &str) -> bool {
            let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), &self.namespace);
            let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
            !slices.list(&of_service).await.unwrap().items.is_empty()
        }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn one_works_and_another_goes_on() {
        let (client, namespace) = namespace().await;
        let play = Play { client, namespace };

        let first = play.start("first", SHORT);
        play.create_service("one").await;
        until(async || play.is_done("one").await).await;
        assert!(play.leader_is("first").await);
        let second = play.start("second", LONG);
        until(async || second.said().contains("leads")).await;

        first.kill();
        play.create_service("two").await;
        until(async || {
            let done = play.is_done("two").await;
            // Read after that: who works has been the leader before.
            assert!(!done || play.leader_is("second").await, "somebody works, and does not lead");
            done
        })
        .await;

        // Told to end, it ends in order, and nobody waits for its lease.
        let third = play.start("third", LONG);
        until(async || third.said().contains("leads")).await;
        second.terminate();
        let told = Instant::now();
        assert_eq!(second.ended().await.code(), Some(0), "{}", second.said());
        play.create_service("three").await;
        until(async || play.is_done("three").await).await;
        assert!(play.leader_is("third").await);
        assert!(told.elapsed() < Duration::from_secs(30), "{:?}", told.elapsed());

        // Past all rules.
        let taken = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
        play.leases().patch(LEASE, &PatchParams::default(), &taken).await.unwrap();
        assert_eq!(third.ended().await.code(), Some(1), "{}", third.said());
        let last = third.said().lines().last().map(str::to_owned);
        assert_eq!(
            last.as_deref(),
            Some("endpointslice: leads no more: the lease was taken by \"thief\""),
            "{}",
            third.said()
        );
    }
}
