//! The harness itself: that what it does to servers has the effect that other tests rely on.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::{Cluster, Reply, eventually};

const LIMIT: Duration = Duration::from_secs(30);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(cluster: &Cluster, name: &str) -> Reply {
    let body = format!("{{\"metadata\": {{\"name\": \"{name}\"}}}}");
    let reply = cluster.request("POST", MAPS, Some(&body)).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply
}

/// The first `"resourceVersion"` in an answer: of a list its own, of an object the object's.
fn version(reply: &Reply) -> String {
    let (_, rest) = reply.body.split_once("\"resourceVersion\":").expect("a version");
    rest.trim_start().trim_start_matches('"').split('"').next().unwrap().to_owned()
}

fn watch(cluster: &Cluster, version: &str) -> Reply {
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    cluster.request("GET", &path, None).unwrap()
}

/// Processes that name a folder in their arguments, which all servers of a cluster and their keepers do.
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // One that has ended meanwhile cannot be read, and one that nobody has waited for reads as empty.
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(folder) {
            found.push(arguments);
        }
    }
    found
}

mod own_cluster {
    use super::*;

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    fn what_was_acknowledged_outlives_the_server() {
        let mut cluster = Cluster::start().unwrap();
        create(&cluster, "a");
        cluster.kill_api_server().unwrap();
        assert!(cluster.request("GET", MAPS, None).is_err(), "nobody listens");
        cluster.restart_api_server().unwrap();
        let found = cluster.request("GET", &format!("{MAPS}/a"), None).unwrap();
        assert_eq!(found.status, 200, "{}", found.body);
    }

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    fn expired_history_is_gone() {
        let mut cluster = Cluster::start().unwrap();
        for name in ["a", "b", "c"] {
            create(&cluster, name);
        }
        let page = cluster.request("GET", &format!("{MAPS}?limit=1"), None).unwrap();
        let (_, rest) = page.body.split_once("\"continue\":\"").expect("more than one page");
        let more = rest.split('"').next().unwrap().to_owned();
        // The newest there is: a client who has seen everything.
        let newest = version(&page);
        assert!(!watch(&cluster, &newest).body.contains("\"code\":410"));

        cluster.expire_history().unwrap();
        let events = watch(&cluster, &newest);
        assert!(events.body.contains("\"code\":410"), "{events:?}");
        let next = cluster.request("GET", &format!("{MAPS}?limit=1&continue={more}"), None).unwrap();
        assert_eq!(next.status, 410, "{}", next.body);

        // The objects are there, and there is a history again.
        let now = version(&cluster.request("GET", MAPS, None).unwrap());
        create(&cluster, "d");
        let events = watch(&cluster, &now);
        assert!(events.body.contains("\"ADDED\"") && events.body.contains("\"name\":\"d\""), "{events:?}");
    }

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    fn a_chosen_controller_works_while_it_runs() {
        let mut cluster = Cluster::start().unwrap();
        let sets = "/apis/apps/v1/namespaces/default/replicasets";
        let make = |cluster: &Cluster, name: &str| {
            let labels = format!("{{\"app\": \"{name}\"}}");
            let body = format!(
                "{{\"metadata\": {{\"name\": \"{name}\"}}, \"spec\": {{\"replicas\": 2, \"selector\": {{\"matchLabels\": \
                 {labels}}}, \"template\": {{\"metadata\": {{\"labels\": {labels}}}, \"spec\": {{\"containers\": \
                 [{{\"name\": \"c\", \"image\": \"none\"}}]}}}}}}}}"
            );
            let reply = cluster.request("POST", sets, Some(&body)).unwrap();
            assert_eq!(reply.status, 201, "{}", reply.body);
        };
        let pods = |cluster: &Cluster, name: &str| {
            let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
            cluster.request("GET", &path, None).unwrap().body.matches("\"generateName\"").count()
        };
        cluster.start_controller_manager(&["replicaset-controller"]).unwrap();
        make(&cluster, "a");
        assert!(eventually(LIMIT, || (pods(&cluster, "a") == 2).then_some(())).is_some());
        cluster.stop_controller_manager().unwrap();
        make(&cluster, "b");
        assert_eq!(pods(&cluster, "b"), 0);
        let error = cluster.start_controller_manager(&["no-such-controller"]).unwrap_err().to_string();
        assert!(error.contains("no-such-controller"), "{error}");
    }

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    #[cfg(target_os = "linux")]
    fn a_dropped_cluster_leaves_no_process() {
        let mut cluster = Cluster::start().unwrap();
        cluster.start_controller_manager(&["replicaset-controller"]).unwrap();
        let folder = cluster.folder().to_owned();
        // A keeper, its other half that watches the pipe, and the server.
        assert_eq!(processes(&folder).len(), 9, "{:#?}", processes(&folder));
        drop(cluster);
        let gone = eventually(LIMIT, || processes(&folder).is_empty().then_some(()));
        assert!(gone.is_some(), "{:#?}", processes(&folder));
    }

    /// What a test says when it holds a cluster and waits to be killed.
    const HERE: &str = "the cluster is in ";

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    #[cfg(target_os = "linux")]
    fn a_killed_test_leaves_no_process() {
        // This test is both: who kills, and who is killed.
        const HOLD: &str = "FLYBALL_E2E_HOLD";
        if env::var_os(HOLD).is_some() {
            let cluster = Cluster::start().unwrap();
            println!("{HERE}{}", cluster.folder().display());
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            return;
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", "own_cluster::a_killed_test_leaves_no_process"]);
        command.env(HOLD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut held = command.spawn().unwrap();
        let mut lines = BufReader::new(held.stdout.take().unwrap()).lines();
        let folder = lines.find_map(|line| Some(PathBuf::from(line.unwrap().split_once(HERE)?.1)));
        let folder = folder.expect("it started a cluster");
        assert_eq!(processes(&folder).len(), 6, "{:#?}", processes(&folder));
        held.kill().unwrap();
        held.wait().unwrap();
        let gone = eventually(LIMIT, || processes(&folder).is_empty().then_some(()));
        assert!(gone.is_some(), "{:#?}", processes(&folder));
    }
}
