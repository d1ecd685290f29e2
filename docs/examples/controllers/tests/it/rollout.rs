//! Randomised tests of the rollout plan: sets, pods and statuses change in any order, and the bounds hold after each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use example_controllers::deployment::{Plan, RolloutBounds, plan};
use example_controllers::replicaset::replicas;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, from_value, json};
use testkit::random::Random;

/// A deployment and its sets. `pods` maps the name of each set to one boolean per pod: whether the pod is ready.
struct World {
    deployment: Deployment,
    sets: Vec<Arc<ReplicaSet>>,
    pods: BTreeMap<String, Vec<bool>>,
    now: Timestamp,
    made: u32,
}

impl World {
    fn new(spec: Value) -> Self {
        let mut whole = json!({"metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1}, "spec": {
            "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 2,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "0"}]}}}});
        whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let deployment = from_value(whole).unwrap();
        Self { deployment, sets: Vec::new(), pods: BTreeMap::new(), now: Timestamp::UNIX_EPOCH, made: 0 }
    }

    fn set_image(&mut self, image: &str) {
        let spec = self.deployment.spec.as_mut().unwrap();
        spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn scale(&mut self, replicas: i32) {
        self.deployment.spec.as_mut().unwrap().replicas = Some(replicas);
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    /// Reconciles the deployment. Returns true if the reconcile changed anything.
    fn reconcile(&mut self) -> bool {
        self.now += SignedDuration::from_secs(1);
        let has_pods = |set: &ReplicaSet| !self.pods[&set.name_any()].is_empty();
        let Plan { create, update, delete, revision, status } =
            plan(&self.deployment, &self.sets, has_pods, self.now).unwrap();
        let writes = create.is_some() || !update.is_empty() || !delete.is_empty();
        let news = self.deployment.status.as_ref() != Some(&status);
        for mut set in update {
            let at = self.sets.iter().position(|known| known.metadata.name == set.metadata.name).unwrap();
            *set.metadata.generation.as_mut().unwrap() +=
                i64::from(replicas(&set) != replicas(&self.sets[at]));
            self.sets[at] = Arc::new(set);
        }
        for set in delete {
            assert!(self.pods[&set.name_any()].is_empty(), "the plan deletes a set that has pods");
            self.sets.retain(|known| known.metadata.name != set.metadata.name);
        }
        if let Some(mut set) = create {
            self.made += 1;
            set.metadata.uid = Some(self.made.to_string());
            set.metadata.generation = Some(1);
            set.metadata.creation_timestamp = Some(Time(self.now));
            self.pods.entry(set.name_any()).or_default();
            self.sets.push(Arc::new(set));
        }
        if let Some(revision) = revision {
            self.deployment.annotations_mut().insert("deployment.kubernetes.io/revision".into(), revision);
        }
        self.deployment.status = Some(status);
        writes || news
    }

    /// One step of the ReplicaSet controller. If `report_status` is true, it updates the status of the set; otherwise it creates or deletes one pod,
    /// unless the set has the wanted number of pods.
    fn step_set(&mut self, at: usize, report_status: bool) {
        let mut set = ReplicaSet::clone(&self.sets[at]);
        let pods = self.pods.get_mut(&set.name_any()).unwrap();
        if report_status {
            let [all, ready] =
                [pods.len(), pods.iter().filter(|ready| **ready).count()].map(|count| count as i32);
            set.status = Some(ReplicaSetStatus {
                replicas: all,
                ready_replicas: Some(ready),
                available_replicas: Some(ready),
                observed_generation: set.metadata.generation,
                ..Default::default()
            });
            self.sets[at] = Arc::new(set);
        } else if (pods.len() as i32) < replicas(&set) {
            pods.push(false);
        } else if pods.len() as i32 > replicas(&set) {
            let victim = pods.iter().position(|ready| !ready).unwrap_or(0);
            pods.remove(victim);
        }
    }

    /// Makes one pod of a set ready, unless the set has the image `broken`.
    fn turn_of_kubelet(&mut self, at: usize) {
        let set = &self.sets[at];
        let image = set.spec.as_ref().unwrap().template.as_ref().unwrap().spec.as_ref().unwrap().containers
            [0]
        .image
        .clone();
        if image.as_deref() != Some("broken")
            && let Some(pod) = self.pods.get_mut(&set.name_any()).unwrap().iter_mut().find(|ready| !**ready)
        {
            *pod = true;
        }
    }

    /// Runs rounds until two consecutive rounds change nothing. In each round, the ReplicaSet controller and the kubelet act on every set, and then
    /// the deployment is reconciled.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..2_000 {
            let before = (self.sets.clone(), self.pods.clone());
            for at in 0..self.sets.len() {
                self.step_set(at, false);
                self.turn_of_kubelet(at);
                self.step_set(at, true);
            }
            let busy = self.reconcile() || before != (self.sets.clone(), self.pods.clone());
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet == 2 {
                return;
            }
        }
        panic!("every round changes something: {:#?}", self.deployment.status);
    }

    fn existing(&self) -> i32 {
        self.pods.values().map(Vec::len).sum::<usize>() as i32
    }

    fn available(&self) -> i32 {
        self.pods.values().flatten().filter(|ready| **ready).count() as i32
    }

    /// Asserts that all pods have the newest template and are available, and that the status reports this.
    #[track_caller]
    fn assert_complete(&self) {
        let wanted = RolloutBounds::of(&self.deployment).wanted;
        assert_eq!((self.existing(), self.available()), (wanted, wanted), "{:#?}", self.deployment.status);
        let sizes: Vec<_> = self.pods.values().map(Vec::len).filter(|len| *len > 0).collect();
        assert!(sizes.len() <= 1, "pods of several templates: {sizes:?}");
        let status = self.deployment.status.clone().unwrap();
        assert_eq!([status.replicas, status.updated_replicas, status.available_replicas], [Some(wanted); 3]);
        assert_eq!(self.reason("Progressing"), "NewReplicaSetAvailable");
        assert_eq!(self.reason("Available"), "MinimumReplicasAvailable");
    }

    fn reason(&self, type_: &str) -> String {
        let conditions = self.deployment.status.clone().unwrap().conditions.unwrap();
        conditions.into_iter().find(|condition| condition.type_ == type_).unwrap().reason.unwrap()
    }
}

fn rolling(replicas: i64, surge: Value, unavailable: Value) -> Value {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    json!({"replicas": replicas, "strategy": strategy})
}

fn amount(random: &mut Random) -> Value {
    if random.below(2) == 0 { json!(random.below(5)) } else { json!(format!("{}%", random.below(101))) }
}

/// Runs one random step.
fn any_turn(world: &mut World, random: &mut Random) {
    let at = random.below(world.sets.len() as u64) as usize;
    match random.below(8) {
        0 => drop(world.reconcile()),
        1..4 => world.step_set(at, false),
        4..6 => world.step_set(at, true),
        _ => world.turn_of_kubelet(at),
    }
}

#[test]
fn a_rollout_stays_within_its_bounds() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let replicas = 1 + random.below(12) as i64;
        let mut world = World::new(rolling(replicas, amount(&mut random), amount(&mut random)));
        world.settle();
        world.assert_complete();
        let bounds = RolloutBounds::of(&world.deployment);
        for _ in 0..500 {
            if random.below(40) == 0 {
                // The new image may be the image of an existing set, or `broken`, whose pods never become ready.
                world.set_image(["0", "1", "2", "3", "broken"][random.below(5) as usize]);
            }
            any_turn(&mut world, &mut random);
            let (existing, available) = (world.existing(), world.available());
            assert!(existing <= bounds.max_existing(), "seed {seed}: {existing} exist, {bounds:?}");
            assert!(available >= bounds.min_available(), "seed {seed}: {available} available, {bounds:?}");
        }
        world.set_image("last");
        world.settle();
        world.assert_complete();
        assert!(world.sets.len() <= 3, "more than two old sets: {} sets", world.sets.len());
    }
}

#[test]
fn recreate_never_runs_old_and_new_pods_together() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut world =
            World::new(json!({"replicas": 1 + random.below(5), "strategy": {"type": "Recreate"}}));
        world.settle();
        for _ in 0..300 {
            if random.below(40) == 0 {
                world.set_image(["0", "1", "2"][random.below(3) as usize]);
            }
            any_turn(&mut world, &mut random);
            let running = world.pods.values().filter(|pods| !pods.is_empty()).count();
            assert!(running <= 1, "seed {seed}");
        }
        world.settle();
        world.assert_complete();
    }
}

#[test]
fn a_rollout_that_is_scaled_completes() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut world =
            World::new(rolling(random.below(12) as i64, amount(&mut random), amount(&mut random)));
        world.settle();
        for _ in 0..300 {
            match random.below(60) {
                0 => world.set_image(["0", "1", "2"][random.below(3) as usize]),
                1 => world.scale(random.below(15) as i32),
                2 => world.deployment.spec.as_mut().unwrap().paused = Some(random.below(2) == 0),
                _ => any_turn(&mut world, &mut random),
            }
        }
        world.deployment.spec.as_mut().unwrap().paused = None;
        world.set_image("last");
        world.settle();
        world.assert_complete();
    }
}

/// The example in the Kubernetes documentation: 10 pods are wanted, the surge is 3, and 2 pods may be unavailable. The number of wanted
/// pods changes to 15 while there are 8 old and 5 new pods.
#[test]
fn shares_are_proportional() {
    for (wanted, expected) in [(15, [11, 7]), (10, [8, 5]), (5, [5, 3]), (0, [0, 0])] {
        let mut world = World::new(rolling(10, json!(3), json!(2)));
        world.settle();
        world.set_image("broken");
        world.settle();
        let sizes = |world: &World| [0, 1].map(|at| replicas(&world.sets[at]));
        assert_eq!(sizes(&world), [8, 5]);
        world.scale(wanted);
        world.reconcile();
        assert_eq!(sizes(&world), expected, "{wanted} wanted");
    }
}

#[test]
fn a_rollout_without_progress_exceeds_its_deadline() {
    let mut world = World::new(rolling(4, json!(1), json!(1)));
    world.settle();
    world.set_image("broken");
    world.settle();
    assert_eq!(world.reason("Progressing"), "ReplicaSetUpdated");
    world.now += SignedDuration::from_secs(600);
    world.settle();
    assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
    assert_eq!(world.available(), 3);
    world.set_image("0");
    world.settle();
    world.assert_complete();
}

#[test]
fn a_pause_stops_rollouts_but_not_scaling() {
    let mut world = World::new(rolling(4, json!(1), json!(1)));
    world.settle();
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    world.set_image("1");
    world.settle();
    assert_eq!((world.sets.len(), world.reason("Progressing").as_str()), (1, "DeploymentPaused"));
    world.scale(6);
    world.settle();
    assert_eq!((world.sets.len(), world.available()), (1, 6));
    world.now += SignedDuration::from_secs(900);
    world.deployment.spec.as_mut().unwrap().paused = None;
    world.settle();
    world.assert_complete();
}
