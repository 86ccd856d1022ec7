//! Admission: what the API server, Istio's webhook and Tidegate's make of a pod together, in either
//! order, in a dry run, and while Tidegate's webhook is away.
//!
//! Most pods here have a scheduling gate: they are created, and never run.

mod absence;
mod shape;
mod webhook;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tidegate::inject::{self, Cluster};
use tidegate::install::CONFIGURATION;
use tokio::time::{Instant, sleep};

use crate::cluster::Lab;
use crate::pods::{Pod, Sidecar};
use shape::{difference, expected, shape, without_identity, without_order};
use webhook::Reviews;

/// The namespace of the pods here, removed at the end.
const NAMESPACE: &str = "admission";
/// Sorts after `istio-sidecar-injector`, so that Istio is asked first.
const LATE: &str = "z-drain.tidegate.dev";
/// How long the API server may take to act on a configuration; it takes a few seconds.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// What pods here are, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// istio-proxy is the first of the containers: `holdApplicationUntilProxyStarts`.
    Classic,
    /// istio-proxy is the last of the containers.
    ClassicLast,
    /// istio-proxy is an init container.
    Native,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Classic, Kind::ClassicLast, Kind::Native];

    fn name(self) -> &'static str {
        match self {
            Kind::Classic => "classic",
            Kind::ClassicLast => "classic-last",
            Kind::Native => "native",
        }
    }

    fn pod(self, name: &str) -> Pod {
        match self {
            Kind::Classic => Pod::new(name).sidecar(Sidecar::Classic),
            Kind::ClassicLast => Kind::Classic.pod(name).annotation(PROXY_CONFIG, "{}"),
            Kind::Native => Pod::new(name).sidecar(Sidecar::Native),
        }
    }
}

const PROXY_CONFIG: &str = "proxy.istio.io/config";

/// Whose webhook the API server asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Tidegate's: as installed. It is asked again for what Istio has added.
    TidegateFirst,
    /// Istio's. Tidegate's is asked again all the same: into its container, the API server has put the
    /// mount of the service account's token.
    IstioFirst,
}

impl Order {
    /// The reviews that one pod takes.
    fn reviews(self) -> Reviews {
        let (patched, unchanged) = match self {
            Order::TidegateFirst => (2, 0),
            Order::IstioFirst => (1, 1),
        };
        Reviews {
            patched,
            unchanged,
            bad: 0,
        }
    }
}

/// Checks it all; Tidegate's webhook is afterwards as it was.
pub(crate) async fn run(lab: &Lab) -> Result<()> {
    let begun = Instant::now();
    let step = |what: &str| println!("{:6.1} s  admission: {what}", begun.elapsed().as_secs_f64());
    lab.namespace(NAMESPACE).await?;
    let mut first = Vec::new();
    for kind in Kind::ALL {
        first.push(injected(lab, Order::TidegateFirst, kind).await?);
    }
    step("Tidegate first: as it should be");
    dry_run(lab).await.context("dry run")?;
    step("dry run: the same, and nothing left");
    warnings(lab).await.context("warnings")?;
    denial(lab).await.context("denial")?;
    step("warnings and denial: in kubectl's words");

    reorder(lab, CONFIGURATION, LATE, Order::IstioFirst).await?;
    for (kind, first) in Kind::ALL.into_iter().zip(&first) {
        let pod = injected(lab, Order::IstioFirst, kind).await?;
        must_equal(kind.name(), &without_order(first), &without_order(&pod))?;
    }
    reorder(lab, LATE, CONFIGURATION, Order::TidegateFirst).await?;
    step("Istio first: as it should be");

    absence::down(lab).await.context("webhook down")?;
    step("webhook down: pods start, and are injected when it is back");
    absence::restarted(lab).await.context("webhook restarted")?;
    step("webhook restarted");
    let arguments = ["delete", "namespace", NAMESPACE, "--wait=false"];
    lab.kubectl(&arguments).await.map(drop)
}

/// A pod that is created and stays unscheduled.
fn gated(pod: &Pod) -> Result<Value> {
    let mut object = here(pod)?;
    object["spec"]["schedulingGates"] = json!([{"name": "tidegate.dev/admission"}]);
    Ok(object)
}

fn here(pod: &Pod) -> Result<Value> {
    let mut object = pod.object()?;
    object["metadata"]["namespace"] = json!(NAMESPACE);
    Ok(object)
}

// ===== both orders =====

/// Creates a pod twice and checks what both webhooks made of it, and that nothing is left to do.
async fn injected(lab: &Lab, order: Order, kind: Kind) -> Result<Value> {
    let name = kind.name();
    let before = Reviews::so_far(lab).await?;
    let pod = lab.create_pod(&gated(&kind.pod(name))?).await?;
    let reviews = before.since(lab).await?;
    ensure!(reviews == order.reviews(), "{name}: {reviews:?}");
    must_equal(name, &expected(kind), &shape(&pod))?;

    let again = inject::inject(&pod, &Cluster::default())?;
    ensure!(
        again.patch.is_empty(),
        "{name}: once more would change it: {:?}",
        again.patch
    );

    let other = format!("{name}-again");
    let twin = lab.create_pod(&gated(&kind.pod(&other))?).await?;
    let twin: Value = serde_json::from_str(&twin.to_string().replace(&other, name))?;
    must_equal(name, &without_identity(&pod), &without_identity(&twin))?;

    // As after `kubectl get -o yaml`: with everything that both have added.
    let mut copy = pod.clone();
    copy["metadata"] = json!({
        "name": format!("{name}-copy"),
        "namespace": NAMESPACE,
        "labels": pod["metadata"]["labels"],
        "annotations": pod["metadata"]["annotations"],
    });
    let copy = lab.dry_run(&copy).await?.object()?;
    must_equal(
        &format!("{name}, injected again"),
        &shape(&pod),
        &shape(&copy),
    )?;
    // The next order's have the same names.
    for name in [name, &other] {
        lab.delete_pod(NAMESPACE, name).await?;
    }
    Ok(pod)
}

fn must_equal(name: &str, expected: &Value, found: &Value) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    bail!("{name}: expected, found: {:#}", difference(expected, found))
}

/// Puts a copy of the configuration under another name in the place of the first, and waits until
/// pods are reviewed in that order.
async fn reorder(lab: &Lab, from: &str, to: &str, order: Order) -> Result<()> {
    const KIND: &str = "mutatingwebhookconfiguration";
    let mut configuration = lab
        .kubectl(&["get", KIND, from, "-o", "json"])
        .await?
        .json();
    configuration["metadata"] = json!({
        "name": to,
        "labels": configuration["metadata"]["labels"],
    });
    lab.apply(&configuration).await?;
    lab.kubectl(&["delete", KIND, from]).await?;
    let pod = gated(&Pod::new("order"))?;
    let deadline = Instant::now() + NOTICE_LIMIT;
    loop {
        let before = Reviews::so_far(lab).await?;
        lab.dry_run(&pod).await?.object()?;
        let reviews = before.since(lab).await?;
        if reviews == order.reviews() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{order:?} after {NOTICE_LIMIT:?}: {reviews:?}");
        }
        sleep(LOOK).await;
    }
}

// ===== what kubectl shows =====

/// A dry run's pod is the one that is then created.
async fn dry_run(lab: &Lab) -> Result<()> {
    for kind in Kind::ALL {
        let name = format!("{}-dry", kind.name());
        let object = gated(&kind.pod(&name))?.to_string();
        let apply = ["apply", "-o", "json", "-f", "-"];
        let dry = lab
            .kubectl_with(&object, &[&apply[..], &["--dry-run=server"]].concat())
            .await?;
        let get = ["get", "pod", &name, "-n", NAMESPACE, "-o", "name"];
        let get = [&get[..], &["--ignore-not-found"]].concat();
        let left = lab.kubectl(&get).await?.stdout();
        ensure!(left.is_empty(), "it has left {left}");
        let real = lab.kubectl_with(&object, &apply).await?;
        must_equal(
            &name,
            &without_identity(&real.json()),
            &without_identity(&dry.json()),
        )?;
        ensure!(
            dry.warnings() == real.warnings(),
            "{name}: {:?}, but in a dry run {:?}",
            real.warnings(),
            dry.warnings()
        );
    }
    Ok(())
}

/// Each warning once, though the webhook is asked twice, and in words of use to whom kubectl tells it.
async fn warnings(lab: &Lab) -> Result<()> {
    let exec = json!({"preStop": {"exec": {"command": ["sleep", "5"]}}});
    let mut foreign = gated(&Pod::new("warn-foreign").sidecar(Sidecar::Classic))?;
    foreign["spec"]["containers"][0]["lifecycle"] = exec;
    let mode = Pod::new("warn-mode").annotation("tidegate.dev/mode", "hold");
    let cases = [
        (gated(&Pod::new("warn-grace"))?, vec![RAISED]),
        (gated(&mode)?, vec![RAISED, OTHER_MODE]),
        (foreign, vec![RAISED, FOREIGN]),
    ];
    for (pod, expected) in cases {
        let outcome = lab
            .kubectl_with(&pod.to_string(), &["apply", "-f", "-"])
            .await?;
        let found = outcome.warnings();
        ensure!(found == expected, "{}: {found:#?}", pod["metadata"]["name"]);
    }
    Ok(())
}

const RAISED: &str = "tidegate: terminationGracePeriodSeconds raised from 300 to 333: \
                      the revision's timeout of 300 s, queue-proxy's 30 s and a margin of 3 s";
const OTHER_MODE: &str = "tidegate: tidegate.dev/mode is \"hold\", but this pod's istio-proxy \
                          makes it \"native\", which was taken; leave the annotation out";
const FOREIGN: &str = "tidegate: container \"user-container\" keeps its own preStop (exec): \
                       it is stopped when that ends, drained or not; call port 18022 from it: \
                       /wait-for-drain?container=user-container";

/// A setting that will not do stops the pod, and who applies it reads which, and what to write.
async fn denial(lab: &Lab) -> Result<()> {
    let pod = Pod::new("denied").annotation("tidegate.dev/min-drain", "soon");
    let pod = gated(&pod)?.to_string();
    for flags in [&[][..], &["--dry-run=server"]] {
        let arguments = [&["apply", "-f", "-"], flags].concat();
        let Err(refused) = lab.kubectl_with(&pod, &arguments).await else {
            bail!("a pod with min-drain \"soon\" was created");
        };
        let said = refused.to_string();
        ensure!(said.contains(DENIED), "{said}");
    }
    Ok(())
}

const DENIED: &str = "admission webhook \"revisions.drain.tidegate.dev\" denied the request: \
                      tidegate: TIDEGATE_MIN_DRAIN=\"soon\": not a duration; write it like 10s, \
                      1m30s or 500ms (annotation tidegate.dev/min-drain)";
