//! Tests that the operations on servers have the effects on which other tests rely.

use e2e::{Cluster, Reply, eventually};

use crate::LIMIT;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A kind that the API server does not cache, so a watch reads directly from etcd.
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn create(cluster: &Cluster, name: &str) -> Reply {
    let body = format!("{{\"metadata\": {{\"name\": \"{name}\"}}}}");
    let reply = cluster.request("POST", MAPS, Some(&body)).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.body);
    reply
}

/// Returns the first `"resourceVersion"` in a response. It is the version of the list or of the object.
fn version(reply: &Reply) -> String {
    let (_, rest) = reply.body.split_once("\"resourceVersion\":").expect("a version");
    rest.trim_start().trim_start_matches('"').split('"').next().unwrap().to_owned()
}

fn watch(cluster: &Cluster, kind: &str, version: &str) -> Reply {
    let path = format!("{kind}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    cluster.request("GET", &path, None).unwrap()
}

mod own_cluster {
    use super::*;

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    fn what_was_acknowledged_outlives_the_server() {
        let mut cluster = Cluster::start().unwrap();
        create(&cluster, "a");
        cluster.kill_api_server().unwrap();
        assert!(cluster.request("GET", MAPS, None).is_err(), "no server listens");
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
        // The newest version, which is the last version of a client that has received all events.
        let newest = version(&page);
        let expired = |cluster: &Cluster, kind| watch(cluster, kind, &newest).body.contains("\"code\":410");
        assert!(!expired(&cluster, MAPS) && !expired(&cluster, EVENTS));

        cluster.expire_history().unwrap();
        assert!(expired(&cluster, MAPS) && expired(&cluster, EVENTS));
        let next = cluster.request("GET", &format!("{MAPS}?limit=1&continue={more}"), None).unwrap();
        assert_eq!(next.status, 410, "{}", next.body);

        // The objects still exist, and a watch delivers the events that follow the compaction.
        let now = version(&cluster.request("GET", MAPS, None).unwrap());
        create(&cluster, "d");
        let events = watch(&cluster, MAPS, &now);
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
}
