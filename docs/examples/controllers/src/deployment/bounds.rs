//! PURE. The wanted number of pods of a deployment, and how far a rollout may deviate from it.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The bounds of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutBounds {
    /// The wanted number of pods.
    pub wanted: i32,
    /// The number of pods that may exist in addition to the wanted ones.
    pub surge: i32,
    /// How many of the wanted pods may be unavailable.
    pub unavailable: i32,
}

impl RolloutBounds {
    /// Returns the bounds of a deployment's rollout. A percentage is rounded up for the surge, and down for the unavailable pods. If both numbers are
    /// zero in a rolling update, one pod may be unavailable; otherwise the rollout could not make progress.
    #[must_use]
    pub fn of(deployment: &Deployment) -> Self {
        let wanted = wanted(deployment);
        let none = Self { wanted, surge: 0, unavailable: 0 };
        let Some(spec) = deployment.spec.as_ref().filter(|spec| !is_recreate(spec)) else { return none };
        let rolling =
            spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
        // The API server's default.
        let quarter = IntOrString::String("25%".to_owned());
        let surge = share(rolling.max_surge.as_ref().unwrap_or(&quarter), wanted, true);
        let unavailable = share(rolling.max_unavailable.as_ref().unwrap_or(&quarter), wanted, false);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { wanted, surge, unavailable: unavailable.min(wanted) }
    }

    /// Returns the maximum number of pods that may exist.
    #[must_use]
    pub fn max_existing(&self) -> i32 {
        self.wanted + self.surge
    }

    /// Returns the minimum number of pods that must be available.
    #[must_use]
    pub fn min_available(&self) -> i32 {
        self.wanted - self.unavailable
    }
}

/// Returns the wanted number of pods; 1, the API server's default, if the field is absent.
#[must_use]
pub(crate) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns true for the strategy Recreate, in which all old pods end before the first new pod is created.
#[must_use]
pub(crate) fn is_recreate(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

fn share(of: &IntOrString, wanted: i32, up: bool) -> i32 {
    match of {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).unwrap_or(0);
            let hundredths = percent.saturating_mul(wanted.into());
            let rounded = if up { hundredths.saturating_add(99) } else { hundredths } / 100;
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn bounds(replicas: i32, surge: Value, unavailable: Value) -> [i32; 2] {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        let spec = json!({"replicas": replicas, "strategy": strategy, "selector": {}, "template": {}});
        let bounds = RolloutBounds::of(&from_value(json!({"metadata": {}, "spec": spec})).unwrap());
        [bounds.surge, bounds.unavailable]
    }

    #[test]
    fn rounds_percentages_and_always_allows_progress() {
        for (replicas, surge, unavailable, expected) in [
            (10, json!("25%"), json!("25%"), [3, 2]),
            (10, json!(null), json!(null), [3, 2]),
            (1, json!("25%"), json!("25%"), [1, 0]),
            (4, json!(0), json!("1%"), [0, 1]),
            (4, json!(0), json!(0), [0, 1]),
            (4, json!("50%"), json!(0), [2, 0]),
            (4, json!(2), json!(9), [2, 4]),
            (0, json!("25%"), json!("25%"), [0, 0]),
            (3, json!("100%"), json!("100%"), [3, 3]),
        ] {
            assert_eq!(
                bounds(replicas, surge.clone(), unavailable.clone()),
                expected,
                "{replicas}: {surge} {unavailable}"
            );
        }
    }
}
