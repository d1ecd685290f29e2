//! PURE. The annotations that the controller writes to the ReplicaSets of a deployment: revisions, and the size of the deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

use super::bounds::RolloutBounds;

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The annotations that are not copied from a deployment to its sets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];
/// The maximum length of the revision history, in bytes.
const HISTORY: usize = 2000;

/// Returns the revision of a set; 0 if the set has no revision yet.
pub(crate) fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the number of pods that the deployment wanted when the set was last scaled.
pub(crate) fn desired(set: &ReplicaSet) -> Option<i32> {
    number(set, DESIRED)
}

/// Returns the maximum number of pods (wanted and surge) that the deployment allowed when the set was last scaled.
pub(crate) fn max_replicas(set: &ReplicaSet) -> Option<i32> {
    number(set, MAX_REPLICAS)
}

fn number(set: &ReplicaSet, key: &str) -> Option<i32> {
    set.annotations().get(key)?.parse().ok().filter(|number| *number >= 0)
}

/// Returns the annotations of a set, updated with the current size of the deployment.
pub(crate) fn with_size(set: &ReplicaSet, bounds: RolloutBounds) -> BTreeMap<String, String> {
    let mut annotations = set.annotations().clone();
    annotations.insert(DESIRED.to_owned(), bounds.wanted.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), bounds.max_existing().to_string());
    annotations
}

/// Returns the annotations that the set with the newest template must have. These are its own annotations, those of the deployment, and a revision
/// that is higher than `newest_old`, the highest revision of the old sets. After a rollback the set already has a revision that is not higher; that
/// revision is appended to the revision history of the set.
pub(crate) fn of_new(deployment: &Deployment, set: &ReplicaSet, newest_old: i64) -> BTreeMap<String, String> {
    let mut annotations = set.annotations().clone();
    for (key, value) in deployment.annotations() {
        if !OWN.contains(&&**key) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let current = set.annotations().get(REVISION);
    if current.is_some_and(|text| text.parse::<i64>().is_err()) || revision(set) > newest_old {
        return annotations;
    }
    if let Some(current) = current {
        let history = annotations.remove(REVISION_HISTORY).unwrap_or_default();
        annotations.insert(REVISION_HISTORY.to_owned(), appended(&history, current));
    }
    annotations.insert(REVISION.to_owned(), (newest_old + 1).to_string());
    annotations
}

/// Appends a revision to the history. Drops the oldest revisions if the history would be longer than [`HISTORY`].
fn appended(history: &str, revision: &str) -> String {
    let mut kept: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).chain([revision]).collect();
    while kept.len() > 1 && kept.iter().map(|text| text.len() + 1).sum::<usize>() > HISTORY + 1 {
        kept.remove(0);
    }
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn notes_of(annotations: serde_json::Value, newest_old: i64) -> serde_json::Value {
        let deployment = json!({"metadata": {"annotations": {"team": "a", REVISION: "9", DESIRED: "9"}}});
        let set = from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
        json!(of_new(&from_value(deployment).unwrap(), &set, newest_old))
    }

    #[test]
    fn the_new_set_gets_the_highest_revision() {
        for (annotations, newest_old, expected) in [
            (json!({}), 0, json!({"team": "a", REVISION: "1"})),
            (json!({}), 4, json!({"team": "a", REVISION: "5"})),
            (json!({REVISION: "5"}), 4, json!({"team": "a", REVISION: "5"})),
            (json!({REVISION: "7"}), 4, json!({"team": "a", REVISION: "7"})),
            (json!({REVISION: "2"}), 4, json!({"team": "a", REVISION: "5", REVISION_HISTORY: "2"})),
            (
                json!({REVISION: "3", REVISION_HISTORY: "1,2"}),
                4,
                json!({"team": "a", REVISION: "5", REVISION_HISTORY: "1,2,3"}),
            ),
            (json!({REVISION: "x"}), 4, json!({"team": "a", REVISION: "x"})),
        ] {
            assert_eq!(notes_of(annotations.clone(), newest_old), expected, "{annotations}");
        }
    }

    #[test]
    fn the_revision_history_is_bounded() {
        let long = vec!["100"; 600].join(",");
        let kept = appended(&long, "7");
        assert!(kept.len() <= HISTORY && kept.len() > HISTORY - 5 && kept.ends_with(",7"));
    }
}
