//! PURE. Compares the results that the cluster reports with those of flyball, and stores how long they have differed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::cut::Slice;
use crate::objects::{ReplicaSet, Service};
use crate::report::{Checked, Difference};
use crate::trace::Expected;

/// Only differences that have existed for longer than this are reported. The cluster's controllers run at the same time
/// as flyball's, so a shorter difference may be a change that one of them has not received yet.
const SETTLED: Duration = Duration::from_secs(10);

type Addresses = BTreeSet<Arc<str>>;

/// Returns the results of the cluster's own controllers, read from the objects of the cluster.
///
/// If a Service has addresses of both families, only the IPv4 addresses are compared, because a pod has only one
/// address in this program.
pub(super) fn reported<'a>(
    replicasets: impl Iterator<Item = &'a ReplicaSet>,
    services: impl Iterator<Item = &'a Service>,
    slices: impl Iterator<Item = &'a Slice>,
) -> Expected {
    let mut ready: HashMap<Arc<str>, BTreeMap<Arc<str>, Addresses>> = HashMap::new();
    for slice in slices {
        if let Some(service) = &slice.service {
            let families = ready.entry(service.clone()).or_default();
            families.entry(slice.family.clone()).or_default().extend(slice.ready.iter().cloned());
        }
    }
    let selecting = services.filter(|service| !service.selector.is_empty());
    let services = selecting.map(|service| {
        let name = service.meta.name.clone();
        let first = ready.remove(&name).and_then(|families| families.into_values().next());
        (name, first.unwrap_or_default())
    });
    let replicasets = replicasets.map(|replicaset| (replicaset.meta.name.clone(), replicaset.reported));
    Expected { replicasets: replicasets.collect(), services: services.collect() }
}

/// Returns the numbers of checked ReplicaSets and Services whose results are equal.
pub(super) fn agree(checked: Checked, differences: &[Difference]) -> Checked {
    let differ =
        |kind: &str| differences.iter().filter(|difference| difference.what.starts_with(kind)).count();
    Checked {
        replicasets: checked.replicasets.saturating_sub(differ("ReplicaSet ")),
        services: checked.services.saturating_sub(differ("Service ")),
    }
}

/// An object whose results have differed at every check for longer than [`SETTLED`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lasting {
    #[serde(flatten)]
    pub(crate) difference: Difference,
    pub(crate) seconds: f64,
}

/// The objects whose results differ. For each, the time of the first of the consecutive checks at which they differed.
#[derive(Debug, Default)]
pub(super) struct Differing(HashMap<String, Duration>);

impl Differing {
    /// Records the objects whose results differ now. Returns those that have differed for longer than [`SETTLED`], the longest first.
    pub(super) fn update(&mut self, now: Duration, differences: Vec<Difference>) -> Vec<Lasting> {
        let before = std::mem::take(&mut self.0);
        let since = |what: &String| before.get(what).copied().unwrap_or(now);
        self.0 =
            differences.iter().map(|difference| (difference.what.clone(), since(&difference.what))).collect();
        let mut lasting: Vec<_> = differences
            .into_iter()
            .map(|difference| Lasting { seconds: (now - since(&difference.what)).as_secs_f64(), difference })
            .filter(|lasting| lasting.seconds > SETTLED.as_secs_f64())
            .collect();
        lasting.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        lasting
    }
}

#[cfg(test)]
mod tests {
    use flyball_informer_cache::Version;

    use super::*;
    use crate::objects::{Key, Meta, Moment};
    use crate::report::compare;

    fn meta(name: &str) -> Meta {
        let (name, namespace) = (name.into(), "n".into());
        Meta { name, namespace, uid: "u".into(), version: Version::new(1), happened: Moment::default() }
    }

    fn replicaset(name: &str, reported: (u32, u32)) -> ReplicaSet {
        ReplicaSet { meta: meta(name), key: Key::new(name.into()), reported }
    }

    fn service(name: &str, selects: bool) -> Service {
        let pairs: Vec<(Arc<str>, Arc<str>)> =
            if selects { vec![("app".into(), "x".into())] } else { Vec::new() };
        Service { meta: meta(name), key: Key::new(name.into()), selector: pairs.into() }
    }

    fn slice(service: &str, family: &str, ready: &[&str]) -> Slice {
        let ready = ready.iter().map(|&address| address.into()).collect();
        let (service, family) = (Some(service.into()), family.into());
        Slice { meta: meta("slice"), service, family, ready }
    }

    #[test]
    fn what_the_cluster_reports_is_put_together_from_its_objects() {
        let services = [service("n/both", true), service("n/none", true), service("n/alone", false)];
        let slices = [
            slice("n/both", "IPv6", &["::1"]),
            slice("n/both", "IPv4", &["1", "2"]),
            slice("n/both", "IPv4", &["3"]),
            slice("n/alone", "IPv4", &["4"]),
        ];
        let expected = reported([replicaset("n/r", (2, 1))].iter(), services.iter(), slices.iter());
        assert_eq!(expected.replicasets, HashMap::from([("n/r".into(), (2, 1))]));
        let both = ["1", "2", "3"].map(Arc::from).into();
        assert_eq!(expected.services, HashMap::from([("n/both".into(), both), ("n/none".into(), [].into())]));
    }

    /// Compares the results of one ReplicaSet and one Service.
    fn differences(counts: (u32, u32), address: &str) -> (Checked, Vec<Difference>) {
        let expected = reported(
            [replicaset("n/r", (2, 1))].iter(),
            [service("n/s", true)].iter(),
            [slice("n/s", "IPv4", &["1"])].iter(),
        );
        let (counts, addresses) =
            (HashMap::from([("n/r".into(), counts)]), HashMap::from([("n/s".into(), vec![address.into()])]));
        (Checked::of(&expected), compare(&expected, &counts, &addresses))
    }

    #[test]
    fn those_that_agree_are_counted_by_kind() {
        let agreeing = |counts, address| {
            let (checked, differences) = differences(counts, address);
            let agree = agree(checked, &differences);
            (agree.replicasets, agree.services)
        };
        assert_eq!(agreeing((2, 1), "1"), (1, 1));
        assert_eq!(agreeing((2, 2), "1"), (0, 1));
        assert_eq!(agreeing((2, 1), "9"), (1, 0));
    }

    #[test]
    fn only_who_differs_at_every_look_for_ten_seconds_is_named() {
        let mut differing = Differing::default();
        let mut update = |second: u64, counts, address| {
            let lasting = differing.update(Duration::from_secs(second), differences(counts, address).1);
            lasting.into_iter().map(|lasting| (lasting.difference.what, lasting.seconds)).collect::<Vec<_>>()
        };
        assert_eq!(update(1, (0, 0), "1"), []);
        assert_eq!(update(3, (0, 0), "9"), []);
        assert_eq!(update(11, (0, 1), "9"), [], "a difference of exactly ten seconds was reported");
        let named = |what: &str, seconds: f64| (what.to_owned(), seconds);
        assert_eq!(update(12, (0, 1), "9"), [named("ReplicaSet n/r", 11.0)]);
        assert_eq!(update(14, (0, 1), "9"), [named("ReplicaSet n/r", 13.0), named("Service n/s", 11.0)]);
        // The ReplicaSet agrees in the check at 15 seconds. So its difference at 20 seconds is a new one, which is too short to be reported.
        assert_eq!(update(15, (2, 1), "9"), [named("Service n/s", 12.0)]);
        assert_eq!(update(20, (0, 1), "9"), [named("Service n/s", 17.0)]);
    }
}
