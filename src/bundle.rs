//! Bundles: what a client sends so that the daemon needs no access to the client's files.
//!
//! A bundle is a tar archive that starts with `manifest.json` and is the same byte for byte for the same content, so its
//! SHA-256 names it. The daemon opens what anybody may have written: every path, size and digest is checked first, and
//! nothing is ever unpacked to a disk.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Largest bundle in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 256 << 20;
/// Most files in a bundle.
pub const MAX_FILES: usize = 10_000;
/// Longest path in a bundle, in bytes.
pub const MAX_PATH_BYTES: usize = 512;

const MANIFEST: &str = "manifest.json";
const VERSION: u32 = 1;

/// What is wrong with a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bytes are no tar archive.
    #[error("reading the bundle")]
    Archive(#[source] std::io::Error),
    /// The manifest is missing or cannot be read.
    #[error("the bundle's manifest: {0}")]
    Manifest(String),
    /// A path that must not stand in a bundle.
    #[error("the path {path:?} must not stand in a bundle: {reason}")]
    Path {
        /// The path.
        path: String,
        /// Why not.
        reason: &'static str,
    },
    /// A file is not what the manifest says.
    #[error("the file {path:?} is not what the manifest says: {reason}")]
    Mismatch {
        /// The file.
        path: String,
        /// What differs.
        reason: &'static str,
    },
    /// Something exceeds its bound.
    #[error("the bundle is too large: {0}")]
    TooLarge(String),
}

/// What a file in a bundle is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A suite.
    Suite,
    /// The seed manifest; there is at most one.
    Seed,
    /// The snapshot, captured by the client; there is at most one.
    Snapshot,
    /// The tool registry; there is at most one.
    Registry,
    /// An earlier result to compare with; there is at most one.
    Baseline,
    /// The stored answers of a suite, beside it.
    Answers,
    /// A file that a case sends to the agent.
    Attachment,
}

/// An opened bundle: path → what it is for, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bundle {
    files: BTreeMap<String, (Role, Vec<u8>)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    files: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: String,
    role: Role,
    size: u64,
    sha256: String,
}

impl Bundle {
    /// Adds a file; one that is there already is replaced.
    ///
    /// # Errors
    /// When `path` is not relative, plain and short.
    pub fn add(&mut self, path: &str, role: Role, bytes: Vec<u8>) -> Result<(), BundleError> {
        check_path(path)?;
        self.files.insert(path.to_owned(), (role, bytes));
        Ok(())
    }

    /// The bytes of a file.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|(_, bytes)| bytes.as_slice())
    }

    /// The first file with a role: its path and bytes.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Option<(&str, &[u8])> {
        let mut files = self.files.iter().filter(|(_, (of, _))| *of == role);
        files.next().map(|(path, (_, bytes))| (path.as_str(), bytes.as_slice()))
    }

    /// The archive; equal bundles give equal bytes.
    ///
    /// # Errors
    /// When the bundle exceeds a bound.
    pub fn pack(&self) -> Result<Vec<u8>, BundleError> {
        let total: u64 = self.files.values().map(|(_, bytes)| bytes.len() as u64).sum();
        if total > MAX_BUNDLE_BYTES || self.files.len() > MAX_FILES {
            let message =
                format!("{} files of {total} bytes; {MAX_FILES} of {MAX_BUNDLE_BYTES} are allowed", self.files.len());
            return Err(BundleError::TooLarge(message));
        }
        let entries = self.files.iter().map(|(path, (role, bytes))| Entry {
            path: path.clone(),
            role: *role,
            size: bytes.len() as u64,
            sha256: hex::encode(Sha256::digest(bytes)),
        });
        let manifest = Manifest { version: VERSION, files: entries.collect() };
        let manifest = serde_json::to_vec(&manifest).map_err(|error| BundleError::Manifest(error.to_string()))?;
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, MANIFEST, &manifest)?;
        for (path, (_, bytes)) in &self.files {
            append(&mut archive, path, bytes)?;
        }
        archive.into_inner().map_err(BundleError::Archive)
    }

    /// Opens an archive and checks everything in it against its manifest.
    ///
    /// # Errors
    /// When anything is not as [`Bundle::pack`] would have written it.
    pub fn open(bytes: &[u8]) -> Result<Self, BundleError> {
        let mut archive = tar::Archive::new(bytes);
        let mut manifest: Option<BTreeMap<String, Entry>> = None;
        let mut bundle = Self::default();
        for entry in archive.entries().map_err(BundleError::Archive)? {
            let mut entry = entry.map_err(BundleError::Archive)?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if entry.header().entry_type() != tar::EntryType::Regular {
                return Err(BundleError::Path { path, reason: "it is no regular file" });
            }
            // Reading is bounded by the bytes at hand, whatever size the header claims.
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(BundleError::Archive)?;
            let Some(manifest) = &mut manifest else {
                if path != MANIFEST {
                    return Err(BundleError::Manifest(format!("must be the first file, found {path:?}")));
                }
                manifest = Some(read_manifest(&content)?);
                continue;
            };
            let Some(expected) = manifest.remove(&path) else {
                return Err(BundleError::Mismatch { path, reason: "it is not listed, or stands there twice" });
            };
            if expected.size != content.len() as u64 || expected.sha256 != hex::encode(Sha256::digest(&content)) {
                return Err(BundleError::Mismatch { path, reason: "size or digest differ" });
            }
            bundle.add(&path, expected.role, content)?;
        }
        match manifest {
            None => Err(BundleError::Manifest("is missing".to_owned())),
            Some(rest) => match rest.into_keys().next() {
                Some(path) => Err(BundleError::Mismatch { path, reason: "it is missing" }),
                None => Ok(bundle),
            },
        }
    }
}

/// SHA-256 of a packed bundle.
#[must_use]
pub fn digest(packed: &[u8]) -> [u8; 32] {
    Sha256::digest(packed).into()
}

fn read_manifest(content: &[u8]) -> Result<BTreeMap<String, Entry>, BundleError> {
    let manifest: Manifest =
        serde_json::from_slice(content).map_err(|error| BundleError::Manifest(error.to_string()))?;
    if manifest.version != VERSION {
        return Err(BundleError::Manifest(format!("version {} is not known, only {VERSION}", manifest.version)));
    }
    if manifest.files.len() > MAX_FILES {
        return Err(BundleError::TooLarge(format!("{} files, {MAX_FILES} are allowed", manifest.files.len())));
    }
    Ok(manifest.files.into_iter().map(|entry| (entry.path.clone(), entry)).collect())
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8]) -> Result<(), BundleError> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, path, bytes).map_err(BundleError::Archive)
}

fn check_path(path: &str) -> Result<(), BundleError> {
    let refuse = |reason| Err(BundleError::Path { path: path.to_owned(), reason });
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return refuse("its length is not within 1 to 512 bytes");
    }
    if path.contains(['\\', '\0', ':']) || path.chars().any(char::is_control) {
        return refuse("it holds a character that is no part of a plain path");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse("it is not relative and plain");
    }
    if path == MANIFEST {
        return refuse("this name belongs to the manifest");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> Bundle {
        let mut bundle = Bundle::default();
        bundle.add("evals/a.golden.json", Role::Suite, b"[]".to_vec()).expect("a plain path");
        bundle.add(&format!("deep/{}.json", "x".repeat(200)), Role::Seed, b"{}".to_vec()).expect("a long path");
        bundle
    }

    #[test]
    fn round_trip_is_exact_and_repeatable() {
        let packed = bundle().pack().expect("packs");
        assert_eq!(packed, bundle().pack().expect("packs"));
        assert_eq!(Bundle::open(&packed).expect("opens"), bundle());
    }

    #[test]
    fn hostile_paths_are_refused() {
        for path in
            ["/etc/passwd", "../x", "a/../b", "a//b", "", "C:\\x", "c:x", "a\0b", "a\nb", "manifest.json", "./a"]
        {
            assert!(Bundle::default().add(path, Role::Suite, Vec::new()).is_err(), "{path:?}");
        }
    }

    #[test]
    fn tampered_archives_are_refused() {
        let packed = bundle().pack().expect("packs");
        for cut in [0, 1, 511, 512, 700, packed.len() / 2] {
            assert!(Bundle::open(&packed[..cut]).is_err(), "cut at {cut}");
        }
        let at = packed.windows(4).position(|w| w == b"[]\0\0").expect("the content of a.golden.json");
        let mut changed = packed;
        changed[at] = b'{';
        assert!(matches!(Bundle::open(&changed), Err(BundleError::Mismatch { .. })));
    }

    #[test]
    fn links_are_refused() {
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, MANIFEST, br#"{"version":1,"files":[]}"#).expect("appends");
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, "a", "/etc/passwd").expect("appends");
        let bytes = archive.into_inner().expect("finishes");
        assert!(matches!(Bundle::open(&bytes), Err(BundleError::Path { .. })));
    }
}
