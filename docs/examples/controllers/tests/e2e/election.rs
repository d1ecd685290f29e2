//! Only one of several processes of a program reconciles. When this process ends, for whatever reason, a different one takes over.

mod own_cluster {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use e2e::Process;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::api::{ListParams, Patch, PatchParams, PostParams};
    use kube::{Api, Client};
    use serde_json::{from_value, json};
    use tokio::sync::Mutex;
    use tokio::task::spawn_blocking;
    use tokio::time::Instant;

    use crate::process;
    use crate::world::{namespace, until};

    const LEASE: &str = "flyball-example-endpointslice";
    /// The lease duration is longer than this test, so that no process can acquire a lease because it has expired.
    const LONG: [&str; 2] = ["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=9m"];
    const SHORT: [&str; 2] = ["--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=4s"];

    struct Play {
        client: Client,
        namespace: String,
    }

    impl Play {
        fn start(&self, name: &str, periods: [&str; 2]) -> Process {
            let mut arguments = vec!["--leader-elect", "--leader-elect-namespace", &self.namespace];
            arguments
                .extend(["--leader-elect-retry-period=500ms", "--health-probe-bind-address=127.0.0.1:0"]);
            arguments.extend(periods);
            process::start(env!("CARGO_BIN_EXE_endpointslice"), name, &arguments)
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

        /// Returns true if the program has created the slice of a service.
        async fn is_done(&self, service: &str) -> bool {
            let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), &self.namespace);
            let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
            !slices.list(&of_service).await.unwrap().items.is_empty()
        }
    }

    /// The programs reconcile the objects of all namespaces, so only one test at a time may run.
    static TURN: Mutex<()> = Mutex::const_new(());

    /// Sends a readiness probe, as a kubelet does, to the address that the program has printed.
    async fn is_ready(process: &Process) -> bool {
        let output = process.output();
        let address = output.lines().find_map(|line| line.strip_prefix("probes at "));
        let Some(address) = address.map(str::to_owned) else { return false };
        let ask = move || {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
        };
        spawn_blocking(ask).await.unwrap().unwrap_or(false)
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_rolling_update_stops_the_old_process_when_the_new_one_is_ready() {
        let _turn = TURN.lock().await;
        let (client, namespace) = namespace().await;
        let play = Play { client, namespace };
        let mut old = play.start("rolled-0", LONG);
        until(async || is_ready(&old).await).await;
        for (n, name) in ["rolled-1", "rolled-2"].into_iter().enumerate() {
            let new = play.start(name, LONG);
            until(async || is_ready(&new).await).await;
            assert!(!play.leader_is(name).await, "the new process leads before the old one has ended");
            let service = format!("before-{n}");
            play.create_service(&service).await;
            until(async || play.is_done(&service).await).await;

            old.terminate().unwrap();
            assert_eq!(process::ended(&old).await.code(), Some(0), "{}", old.output());
            let service = format!("after-{n}");
            play.create_service(&service).await;
            until(async || play.is_done(&service).await).await;
            assert!(play.leader_is(name).await);
            old = new;
        }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_standby_takes_over() {
        let _turn = TURN.lock().await;
        let (client, namespace) = namespace().await;
        let play = Play { client, namespace };

        let first = play.start("first", SHORT);
        play.create_service("one").await;
        until(async || play.is_done("one").await).await;
        assert!(play.leader_is("first").await);
        let second = play.start("second", LONG);
        until(async || second.output().contains("leads")).await;

        first.kill();
        play.create_service("two").await;
        until(async || {
            let done = play.is_done("two").await;
            // The leader is read only after the slice was found: the process that creates a slice must already be the leader, so `second` must be the
            // leader by now.
            assert!(!done || play.leader_is("second").await, "a process works, but does not lead");
            done
        })
        .await;

        // After SIGTERM the leader releases its lease, so the next leader does not have to wait until the lease expires.
        let third = play.start("third", LONG);
        until(async || third.output().contains("leads")).await;
        second.terminate().unwrap();
        let signalled = Instant::now();
        assert_eq!(process::ended(&second).await.code(), Some(0), "{}", second.output());
        play.create_service("three").await;
        until(async || play.is_done("three").await).await;
        assert!(play.leader_is("third").await);
        assert!(signalled.elapsed() < Duration::from_secs(30), "{:?}", signalled.elapsed());

        // A different client takes the lease over before it has expired.
        let taken = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
        play.leases().patch(LEASE, &PatchParams::default(), &taken).await.unwrap();
        assert_eq!(process::ended(&third).await.code(), Some(1), "{}", third.output());
        let last = third.output().lines().last().map(str::to_owned);
        assert_eq!(
            last.as_deref(),
            Some("endpointslice: leads no more: the lease was taken by \"thief\""),
            "{}",
            third.output()
        );
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_leader_that_was_suspended_ends_when_it_resumes() {
        let _turn = TURN.lock().await;
        let (client, namespace) = namespace().await;
        let play = Play { client, namespace };
        let first = play.start("first", SHORT);
        play.create_service("one").await;
        until(async || play.is_done("one").await).await;
        assert!(play.leader_is("first").await);
        let second = play.start("second", LONG);
        until(async || is_ready(&second).await).await;

        first.suspend().unwrap();
        play.create_service("two").await;
        until(async || play.is_done("two").await).await;
        assert!(play.leader_is("second").await);

        // Its own clock ran on, so it gives up before it asks the server.
        first.resume().unwrap();
        assert_eq!(process::ended(&first).await.code(), Some(1), "{}", first.output());
        let output = first.output();
        let last = output.lines().last().unwrap_or_default();
        assert!(last.starts_with("endpointslice: leads no more: "), "{output}");
        play.create_service("three").await;
        until(async || play.is_done("three").await).await;
        assert!(play.leader_is("second").await);
    }
}
