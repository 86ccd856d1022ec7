//! Where a run finds what it needs, and where it works.

use std::path::{Path, PathBuf};

/// The files and folders of a run; `./test lab` sets each by an environment variable.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// The lab's own folder: `TIDEGATE_LAB_DIR`, else `target/lab`.
    pub(crate) dir: PathBuf,
    /// What `tests/lab/build.sh` has built: `TIDEGATE_LAB_PARTS`, else `target/tools/k8s`.
    pub(crate) parts: PathBuf,
    /// Envoy: `TIDEGATE_TEST_ENVOY`, else `target/tools/bin/envoy`.
    pub(crate) envoy: PathBuf,
    /// Tidegate's image as an OCI archive: `TIDEGATE_LAB_IMAGE`, else `target/lab/tidegate.tar`.
    pub(crate) tidegate_image: PathBuf,
    /// The program of the test's pods: `TIDEGATE_LAB_APP`, else `target/debug/lab-app`.
    pub(crate) app: PathBuf,
}

impl Paths {
    /// Reads the environment.
    pub(crate) fn from_env() -> Paths {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        let path = |name: &str, default: &str| {
            std::env::var_os(name).map_or_else(|| target.join(default), PathBuf::from)
        };
        Paths {
            dir: path("TIDEGATE_LAB_DIR", "lab"),
            parts: path("TIDEGATE_LAB_PARTS", "tools/k8s"),
            envoy: path("TIDEGATE_TEST_ENVOY", "tools/bin/envoy"),
            tidegate_image: path("TIDEGATE_LAB_IMAGE", "lab/tidegate.tar"),
            app: path("TIDEGATE_LAB_APP", "debug/lab-app"),
        }
    }

    /// One of the parts.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.parts.join(name)
    }

    /// What lives as long as the node: its configuration, logs and containers.
    pub(crate) fn node(&self) -> PathBuf {
        self.dir.join("node")
    }

    /// The images, kept from run to run.
    pub(crate) fn images(&self) -> PathBuf {
        self.dir.join("images")
    }
}
