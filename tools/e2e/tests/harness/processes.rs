//! Tests that no server process remains after a test, however the test ends.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::{Cluster, eventually};

use crate::LIMIT;

/// Returns the processes whose arguments contain `folder`. These are all servers of the cluster with this folder, and their keepers.
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // The arguments of a process that has ended cannot be read, and those of a zombie are empty.
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
    fn a_dropped_cluster_leaves_no_process_and_only_logs() {
        let mut cluster = Cluster::start().unwrap();
        cluster.start_controller_manager(&["replicaset-controller"]).unwrap();
        let folder = cluster.folder().to_owned();
        // There are three processes for each of the three servers: the keeper, the subshell that waits until the pipe closes, and the server itself.
        assert_eq!(processes(&folder).len(), 9, "{:#?}", processes(&folder));
        assert!(folder.join("etcd").exists());
        drop(cluster);
        assert!(!folder.join("etcd").exists());
        let gone = eventually(LIMIT, || processes(&folder).is_empty().then_some(()));
        assert!(gone.is_some(), "{:#?}", processes(&folder));
    }

    /// The text that the child test prints when it has started a cluster and waits to be killed.
    const HERE: &str = "the cluster is in ";

    #[test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    fn a_killed_test_leaves_no_process() {
        // This test runs in two processes: the parent starts the test again as a child, and kills the child.
        const HOLD: &str = "FLYBALL_E2E_HOLD";
        if env::var_os(HOLD).is_some() {
            let cluster = Cluster::start().unwrap();
            println!("{HERE}{}", cluster.folder().display());
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            return;
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([
            "--ignored",
            "--exact",
            "--nocapture",
            "processes::own_cluster::a_killed_test_leaves_no_process",
        ]);
        command.env(HOLD, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut held = command.spawn().unwrap();
        let mut lines = BufReader::new(held.stdout.take().unwrap()).lines();
        let folder = lines.find_map(|line| Some(PathBuf::from(line.unwrap().split_once(HERE)?.1)));
        let folder = folder.expect("no cluster was started");
        assert_eq!(processes(&folder).len(), 6, "{:#?}", processes(&folder));
        held.kill().unwrap();
        held.wait().unwrap();
        let gone = eventually(LIMIT, || processes(&folder).is_empty().then_some(()));
        assert!(gone.is_some(), "{:#?}", processes(&folder));
    }
}
