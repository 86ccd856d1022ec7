//! A Secret of certificates, mounted and renewed, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::Files;

/// A Secret as the kubelet mounts it.
#[derive(Debug)]
pub(crate) struct Mount {
    dir: TempDir,
    generation: u32,
}

impl Mount {
    pub(crate) fn new() -> Mount {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), dir.path().join(name)).unwrap();
        }
        Mount { dir, generation: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn files(&self) -> Files {
        Files {
            cert: self.dir.path().join("tls.crt"),
            key: self.dir.path().join("tls.key"),
        }
    }

    /// Writes a generation beside the last and swaps the one link.
    pub(crate) fn publish(&mut self, cert: impl AsRef<[u8]>, key: impl AsRef<[u8]>) {
        self.generation += 1;
        let name = format!("..{}", self.generation);
        let dir = self.dir.path().join(&name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("tls.crt"), cert).unwrap();
        fs::write(dir.join("tls.key"), key).unwrap();
        let link = self.dir.path().join("..data_tmp");
        symlink(&name, &link).unwrap();
        fs::rename(&link, self.dir.path().join("..data")).unwrap();
    }
}
