//! An image of one layer as an OCI layout in a tar archive: what `ctr images import` reads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ring::digest::{self, SHA256};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "amd64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "arm64";

/// What an image holds and how it starts.
#[derive(Debug)]
pub(crate) struct Image {
    name: String,
    entrypoint: Vec<String>,
    user: Option<&'static str>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum Entry {
    /// A file of the machine's, symbolic links followed.
    File(PathBuf),
    Text(String),
    Link(String),
    Folder(u32),
}

impl Image {
    /// An empty one; `name` is whole, with a registry and a tag.
    pub(crate) fn new(name: &str, entrypoint: &[&str]) -> Image {
        Image {
            name: name.to_owned(),
            entrypoint: entrypoint.iter().map(ToString::to_string).collect(),
            user: None,
            entries: BTreeMap::new(),
        }
    }

    /// Whom it runs as; root else.
    pub(crate) fn user(mut self, user: &'static str) -> Image {
        self.user = Some(user);
        self
    }

    /// A file of the machine's, executable.
    pub(crate) fn file(self, path: impl AsRef<Path>, inside: &str) -> Image {
        self.entry(inside, Entry::File(path.as_ref().to_owned()))
    }

    pub(crate) fn text(self, inside: &str, text: &str) -> Image {
        self.entry(inside, Entry::Text(text.to_owned()))
    }

    pub(crate) fn link(self, inside: &str, to: &str) -> Image {
        self.entry(inside, Entry::Link(to.to_owned()))
    }

    pub(crate) fn folder(self, inside: &str, mode: u32) -> Image {
        self.entry(inside, Entry::Folder(mode))
    }

    fn entry(mut self, inside: &str, entry: Entry) -> Image {
        self.entries
            .insert(inside.trim_matches('/').to_owned(), entry);
        self
    }

    /// Writes it below `folder`, unless it is there already from these very files.
    pub(crate) fn write(self, folder: &Path) -> Result<PathBuf> {
        let file = self.name.replace(['/', ':'], "-");
        let archive = folder.join(format!("{file}.tar"));
        let made_of = folder.join(format!("{file}.made-of"));
        let fingerprint = self.fingerprint()?;
        let is_new = fs::read_to_string(&made_of).is_ok_and(|text| text == fingerprint);
        if !is_new || !archive.exists() {
            let _ = fs::remove_file(&made_of);
            let layer = folder.join(format!("{file}.layer"));
            self.write_layer(&layer)?;
            self.write_archive(&layer, &archive)?;
            fs::remove_file(&layer)?;
            fs::write(&made_of, fingerprint)?;
        }
        Ok(archive)
    }

    /// All that decides what is written: of files, when they changed.
    fn fingerprint(&self) -> Result<String> {
        let mut text = format!("{self:?}\n");
        for entry in self.entries.values() {
            if let Entry::File(path) = entry {
                let stat = fs::metadata(path).with_context(|| path.display().to_string())?;
                text += &format!("{} {}.{}\n", stat.size(), stat.mtime(), stat.mtime_nsec());
            }
        }
        Ok(sha256_hex(text.as_bytes()))
    }

    fn write_layer(&self, layer: &Path) -> Result<()> {
        let mut tar = Builder::new(io::BufWriter::new(File::create(layer)?));
        for folder in self.parents() {
            append(&mut tar, &folder, EntryType::Directory, 0o755, &[])?;
        }
        for (path, entry) in &self.entries {
            match entry {
                Entry::File(source) => {
                    let contents =
                        fs::read(source).with_context(|| source.display().to_string())?;
                    append(&mut tar, path, EntryType::Regular, 0o755, &contents)?;
                }
                Entry::Text(text) => {
                    append(&mut tar, path, EntryType::Regular, 0o644, text.as_bytes())?;
                }
                Entry::Folder(mode) => append(&mut tar, path, EntryType::Directory, *mode, &[])?,
                Entry::Link(to) => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, path, to)?;
                }
            }
        }
        tar.into_inner()?.flush()?;
        Ok(())
    }

    /// The folders that nobody named, outermost first.
    fn parents(&self) -> Vec<String> {
        let mut parents: Vec<String> = self
            .entries
            .keys()
            .flat_map(|path| path.match_indices('/').map(|(at, _)| path[..at].to_owned()))
            .filter(|folder| !self.entries.contains_key(folder))
            .collect();
        parents.sort();
        parents.dedup();
        parents
    }

    fn write_archive(&self, layer: &Path, archive: &Path) -> Result<()> {
        let layer_digest = sha256_of_file(layer)?;
        let config = json!({
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "WorkingDir": "/",
                "Env": [PATH],
                "User": self.user.unwrap_or_default(),
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &sha256_hex(config.as_bytes()), config.len() as u64),
            "layers": [descriptor(LAYER, &layer_digest, fs::metadata(layer)?.len())],
        })
        .to_string();
        let mut named = descriptor(
            MANIFEST,
            &sha256_hex(manifest.as_bytes()),
            manifest.len() as u64,
        );
        named["annotations"] = json!({"io.containerd.image.name": self.name});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]});

        let mut tar = Builder::new(io::BufWriter::new(File::create(archive)?));
        let blob = |text: &str| format!("blobs/sha256/{}", sha256_hex(text.as_bytes()));
        let texts = [
            (
                "oci-layout".to_owned(),
                json!({"imageLayoutVersion": "1.0.0"}).to_string(),
            ),
            ("index.json".to_owned(), index.to_string()),
            (blob(&config), config),
            (blob(&manifest), manifest),
        ];
        for (path, text) in texts {
            append(&mut tar, &path, EntryType::Regular, 0o644, text.as_bytes())?;
        }
        let mut header = header(EntryType::Regular, 0o644, fs::metadata(layer)?.len());
        let path = format!("blobs/sha256/{layer_digest}");
        tar.append_data(&mut header, path, File::open(layer)?)?;
        tar.into_inner()?.flush()?;
        Ok(())
    }
}

fn append(
    tar: &mut Builder<impl Write>,
    path: &str,
    kind: EntryType,
    mode: u32,
    contents: &[u8],
) -> Result<()> {
    let mut header = header(kind, mode, contents.len() as u64);
    tar.append_data(&mut header, path, contents)?;
    Ok(())
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

/// The SHA-256 of bytes, in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&digest::digest(&SHA256, bytes))
}

fn sha256_of_file(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&SHA256);
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&context.finish())),
            read => context.update(&chunk[..read]),
        }
    }
}

fn hex(digest: &digest::Digest) -> String {
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
