//! The images of the lab, made of the machine's files and of what was built: no registry, no daemon.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::oci::Image;
pub(crate) use crate::oci::sha256_hex;
use crate::paths::Paths;

/// Holds a pod's namespaces.
pub(crate) const PAUSE: &str = "tidegate.lab/pause:1";
/// Knative's queue-proxy.
pub(crate) const QUEUE: &str = "tidegate.lab/queue:1";
/// The test's own program, for user containers and clients.
pub(crate) const APP: &str = "tidegate.lab/app:1";
/// Istio's `hub`: where its images `pilot` and `proxyv2` are.
pub(crate) const ISTIO_HUB: &str = "tidegate.lab/istio";
/// Istio's `tag`.
pub(crate) const ISTIO_TAG: &str = "1";

/// Where distributions keep the modules of iptables.
const XTABLES: &str = "/usr/lib/x86_64-linux-gnu/xtables";
const PASSWD: &str = "root:x:0:0:root:/root:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
istio-proxy:x:1337:1337:istio-proxy:/home/istio-proxy:/sbin/nologin
";
const GROUP: &str = "root:x:0:
nonroot:x:65532:
istio-proxy:x:1337:
";

/// Writes those that are not there, or not of these files; returns all as archives for
/// `ctr images import`, in the order in which they are needed.
pub(crate) fn write(paths: &Paths) -> Result<Vec<PathBuf>> {
    let folder = paths.images();
    fs::create_dir_all(&folder)?;
    let images = [
        Image::new(PAUSE, &["/app", "pause"]).program(&paths.app, "/app")?,
        base(&istio("pilot"), "/pilot-discovery")
            .user("1337:1337")
            .program(paths.part("pilot-discovery"), "/pilot-discovery")?,
        proxy(paths)?,
        base(QUEUE, "/ko-app/queue")
            .user("65532")
            .program(paths.part("queue-proxy"), "/ko-app/queue")?,
        base(APP, "/app")
            .user("65532")
            .program(&paths.app, "/app")?,
    ];
    let images = images.into_iter();
    images.map(|image| image.write(&folder)).collect()
}

fn istio(image: &str) -> String {
    format!("{ISTIO_HUB}/{image}:{ISTIO_TAG}")
}

fn base(name: &str, program: &str) -> Image {
    Image::new(name, &[program])
        .text("/etc/passwd", PASSWD)
        .text("/etc/group", GROUP)
        .folder("/tmp", 0o1777)
        .folder("/run", 0o755)
        .folder("/var/run/secrets", 0o755)
}

/// istio-proxy, and istio-init: the agent, Envoy and its bootstrap, iptables in both its kinds.
fn proxy(paths: &Paths) -> Result<Image> {
    let mut image = base(&istio("proxyv2"), "/usr/local/bin/pilot-agent")
        .program(paths.part("pilot-agent"), "/usr/local/bin/pilot-agent")?
        .program(&paths.envoy, "/usr/local/bin/envoy")?
        .file(
            paths.part("envoy_bootstrap.json"),
            "/var/lib/istio/envoy/envoy_bootstrap_tmpl.json",
        )
        .folder("/etc/istio/proxy", 0o777)
        .folder("/home/istio-proxy", 0o755);
    for kind in ["nft", "legacy"] {
        let program = format!("/usr/sbin/xtables-{kind}-multi");
        image = image.program(&program, &program)?;
        for family in ["iptables", "ip6tables"] {
            for action in ["", "-save", "-restore"] {
                image = image.link(&format!("/usr/sbin/{family}-{kind}{action}"), &program);
                if kind == "nft" {
                    image = image.link(&format!("/usr/sbin/{family}{action}"), &program);
                }
            }
        }
    }
    image.libraries(&xtables()?)
}

/// The modules of iptables, as files.
fn xtables() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(XTABLES).with_context(|| format!("{XTABLES}: iptables has it"))?;
    let paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    let is_module = |path: &PathBuf| path.extension() == Some(OsStr::new("so"));
    Ok(paths.into_iter().filter(is_module).collect())
}

impl Image {
    /// A program, with all that it is linked with.
    fn program(self, path: impl AsRef<Path>, inside: &str) -> Result<Image> {
        let path = path.as_ref();
        Ok(self.files(linked(&[path])?).file(path, inside))
    }

    /// Libraries where they are on the machine, with all that they are linked with.
    fn libraries(self, paths: &[PathBuf]) -> Result<Image> {
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let linked = linked(&paths)?;
        Ok(self
            .files(paths.into_iter().map(Path::to_owned))
            .files(linked))
    }

    fn files(self, paths: impl IntoIterator<Item = PathBuf>) -> Image {
        paths.into_iter().fold(self, |image, path| {
            let inside = path.display().to_string();
            image.file(path, &inside)
        })
    }
}

/// What the dynamic linker would load for them; nothing for what is static.
fn linked(paths: &[&Path]) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .args(paths)
        .output()
        .context("ldd comes with libc-bin")?;
    let text = String::from_utf8(output.stdout)?;
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!("{paths:?} lack a library: {missing}");
    }
    // `PATH:` begins what is said of each, where there are many.
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words
        .filter(|word| !word.ends_with(':'))
        .map(PathBuf::from)
        .collect())
}
