//! Bundles: what a client sends so that the daemon needs no access to the client's files.
//!
//! A bundle is a tar archive that starts with `manifest.json` and is the same byte for byte for the same content,
//! so its SHA-256 names it. The daemon opens what anybody may have written: every path, size and digest is checked
//! first, and nothing is ever unpacked to a disk.
//!
//! A bundle may be larger than memory: large files of cases are read from where they stand, on both sides.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::limits::LONG_NAME_BYTES;
use crate::suite::Dialect;
use crate::suite::text::{HELD_BYTES, Text};

/// Largest bundle in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 4 << 30;
/// Most bytes of a bundle that are held in memory: of all files but large ones of cases.
pub const MAX_HELD_BYTES: u64 = 256 << 20;
/// Largest manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 32 << 20;
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
    /// A script, below `scripts/`.
    Script,
    /// A file that a case sends to the agent.
    Attachment,
}

/// An opened bundle: path → what it is for, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bundle {
    files: BTreeMap<String, (Role, Text)>,
}

/// The bytes of a file on a disk, or of a part of one: those of a large file of cases stay there.
///
/// # Errors
/// When they cannot be read.
pub fn text_of(file: &Arc<File>, start: u64, len: u64, may_stay: bool) -> io::Result<Text> {
    let stored = part_of(file, start, len);
    if may_stay && len > HELD_BYTES {
        return Ok(stored);
    }
    let bytes = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    Ok(stored.read(0, bytes)?.into())
}

fn part_of(file: &Arc<File>, start: u64, len: u64) -> Text {
    let file = Arc::clone(file);
    Text::stored(len, move |position, out| file.read_exact_at(out, start + position))
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
    /// Adds a file; the same one once more changes nothing, whatever it is for then.
    ///
    /// # Errors
    /// When `path` is not relative, plain and short, or another file has it.
    pub fn add(&mut self, path: &str, role: Role, bytes: impl Into<Text>) -> Result<(), BundleError> {
        check_path(path)?;
        let text = bytes.into();
        match self.files.get(path) {
            None => drop(self.files.insert(path.to_owned(), (role, text))),
            Some((_, other)) if *other == text => {}
            Some(_) => {
                return Err(BundleError::Path { path: path.to_owned(), reason: "another file has it" });
            }
        }
        Ok(())
    }

    /// The bytes of a file, if it is held.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.text(path)?.held()
    }

    /// The bytes of a file, wherever they are.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&Text> {
        self.files.get(path).map(|(_, text)| text)
    }

    /// The first file with a role: its path and bytes.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Option<(&str, &[u8])> {
        let mut files = self.files.iter().filter(|(_, (of, _))| *of == role);
        files.next().and_then(|(path, (_, text))| Some((path.as_str(), text.held()?)))
    }

    /// Writes the archive and gives its SHA-256 and size; equal bundles give equal bytes.
    ///
    /// # Errors
    /// When the bundle exceeds a bound, or cannot be read or written.
    pub fn pack(&self, out: impl Write) -> Result<([u8; 32], u64), BundleError> {
        let total: u64 = self.files.values().map(|(_, text)| text.len()).sum();
        let held: u64 = self.files.values().filter(|(_, text)| text.held().is_some()).map(|(_, text)| text.len()).sum();
        if total > MAX_BUNDLE_BYTES || held > MAX_HELD_BYTES || self.files.len() > MAX_FILES {
            let message = format!(
                "{} files of {total} bytes; {MAX_FILES} of {MAX_BUNDLE_BYTES} are allowed, and {MAX_HELD_BYTES} besides \
                 large files of cases",
                self.files.len()
            );
            return Err(BundleError::TooLarge(message));
        }
        let mut entries = Vec::new();
        for (path, (role, text)) in &self.files {
            let mut hash = Hashing { inner: io::sink(), hash: Sha256::new(), size: 0 };
            io::copy(&mut text.reader(), &mut hash).map_err(BundleError::Archive)?;
            let sha256 = hex::encode(hash.hash.finalize());
            entries.push(Entry { path: path.clone(), role: *role, size: hash.size, sha256 });
        }
        let manifest = Manifest { version: VERSION, files: entries };
        let manifest = serde_json::to_vec(&manifest).map_err(|error| BundleError::Manifest(error.to_string()))?;
        let mut archive = tar::Builder::new(Hashing { inner: out, hash: Sha256::new(), size: 0 });
        append(&mut archive, MANIFEST, manifest.len() as u64, manifest.as_slice())?;
        for (path, (_, text)) in &self.files {
            append(&mut archive, path, text.len(), text.reader())?;
        }
        let mut written = archive.into_inner().map_err(BundleError::Archive)?;
        written.flush().map_err(BundleError::Archive)?;
        Ok((written.hash.finalize().into(), written.size))
    }

    /// Opens an archive and checks everything in it against its manifest.
    ///
    /// # Errors
    /// When anything is not as [`Bundle::pack`] would have written it.
    pub fn open(file: &Arc<File>) -> Result<Self, BundleError> {
        let len = file.metadata().map_err(BundleError::Archive)?.len();
        let mut archive = tar::Archive::new(io::BufReader::with_capacity(64 << 10, part_of(file, 0, len).reader()));
        let mut held = 0;
        let mut manifest: Option<BTreeMap<String, Entry>> = None;
        let mut bundle = Self::default();
        // Raw: the reader would take a long name for as long as it claims to be.
        let mut long_name = None;
        for entry in archive.entries().map_err(BundleError::Archive)?.raw(true) {
            let mut entry = entry.map_err(BundleError::Archive)?;
            if names_the_next(&mut entry, &mut long_name)? {
                continue;
            }
            let path = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
            let path = String::from_utf8_lossy(&path).into_owned();
            if entry.header().entry_type() != tar::EntryType::Regular {
                return Err(BundleError::Path { path, reason: "it is no regular file" });
            }
            let Some(manifest) = &mut manifest else {
                if path != MANIFEST {
                    return Err(BundleError::Manifest(format!("must be the first file, found {path:?}")));
                }
                // Reading is bounded by the bytes at hand, whatever size the header claims.
                let mut content = Vec::new();
                entry.by_ref().take(MAX_MANIFEST_BYTES).read_to_end(&mut content).map_err(BundleError::Archive)?;
                manifest = Some(read_manifest(&content)?);
                continue;
            };
            let Some(expected) = manifest.remove(&path) else {
                return Err(BundleError::Mismatch { path, reason: "it is not listed, or stands there twice" });
            };
            let start = entry.raw_file_position();
            let mut hash = Hashing { inner: io::sink(), hash: Sha256::new(), size: 0 };
            io::copy(&mut entry, &mut hash).map_err(BundleError::Archive)?;
            if expected.size != hash.size || expected.sha256 != hex::encode(hash.hash.finalize()) {
                return Err(BundleError::Mismatch { path, reason: "size or digest differ" });
            }
            let may_stay = expected.role == Role::Suite && Dialect::of(&path) == Dialect::Framework;
            if !may_stay || hash.size <= HELD_BYTES {
                held += hash.size;
                if held > MAX_HELD_BYTES {
                    let message = format!("more than {MAX_HELD_BYTES} bytes besides large files of cases");
                    return Err(BundleError::TooLarge(message));
                }
            }
            let text = text_of(file, start, hash.size, may_stay).map_err(BundleError::Archive)?;
            bundle.add(&path, expected.role, text)?;
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

/// Whether this is no file, but an entry that says how the next one is called: a path that is too long for a header, as
/// GNU and as POSIX write them.
fn names_the_next(entry: &mut tar::Entry<'_, impl Read>, name: &mut Option<Vec<u8>>) -> Result<bool, BundleError> {
    let kind = entry.header().entry_type();
    if !matches!(kind, tar::EntryType::GNULongName | tar::EntryType::XHeader) {
        return Ok(false);
    }
    if entry.size() > LONG_NAME_BYTES {
        let message = format!("a long name has {} bytes, {LONG_NAME_BYTES} are allowed", entry.size());
        return Err(BundleError::TooLarge(message));
    }
    let mut content = Vec::new();
    entry.take(LONG_NAME_BYTES).read_to_end(&mut content).map_err(BundleError::Archive)?;
    if kind == tar::EntryType::GNULongName {
        *name = content.split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
        return Ok(true);
    }
    for extension in tar::PaxExtensions::new(&content) {
        let extension = extension.map_err(BundleError::Archive)?;
        match extension.key_bytes() {
            b"path" => *name = Some(extension.value_bytes().to_vec()),
            b"size" => return Err(BundleError::TooLarge("a file is larger than its header can say".to_owned())),
            // Times and owners say nothing here.
            _ => {}
        }
    }
    Ok(true)
}

/// Writes on, and keeps the hash and the number of the bytes.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// SHA-256 of all that can be read.
///
/// # Errors
/// When it cannot be read.
pub fn digest(mut packed: impl Read) -> io::Result<[u8; 32]> {
    let mut hash = Hashing { inner: io::sink(), hash: Sha256::new(), size: 0 };
    io::copy(&mut packed, &mut hash)?;
    Ok(hash.hash.finalize().into())
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

fn append(archive: &mut tar::Builder<impl Write>, path: &str, size: u64, bytes: impl Read) -> Result<(), BundleError> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
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

    fn packed(bundle: &Bundle) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (sha256, size) = bundle.pack(&mut bytes).expect("packs");
        assert_eq!((sha256, size), (digest(bytes.as_slice()).expect("reads"), bytes.len() as u64));
        bytes
    }

    fn open(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("writes");
        Bundle::open(&Arc::new(file))
    }

    #[test]
    fn round_trip_is_exact_and_repeatable() {
        let bytes = packed(&bundle());
        assert_eq!(bytes, packed(&bundle()));
        assert_eq!(open(&bytes).expect("opens"), bundle());
    }

    #[test]
    fn large_files_of_cases_stay_where_they_are() {
        let mut bundle = Bundle::default();
        let large = "0123456789".repeat(1_000_000).into_bytes();
        bundle.add("a/large.jsonl", Role::Suite, large.clone()).expect("a plain path");
        bundle.add("large.bin", Role::Attachment, large.clone()).expect("a plain path");
        let opened = open(&packed(&bundle)).expect("opens");
        assert_eq!(opened.get("large.bin"), Some(large.as_slice()));
        assert_eq!(opened.get("a/large.jsonl"), None);
        let text = opened.text("a/large.jsonl").expect("is there");
        assert_eq!(text.read(9_999_995, 5).expect("reads"), b"56789");
        assert!(text.read(9_999_996, 5).is_err(), "what stands behind it is not its");
        assert_eq!(packed(&opened), packed(&bundle), "packed from there too");
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
        let packed = packed(&bundle());
        for cut in [0, 1, 511, 512, 700, packed.len() / 2] {
            assert!(open(&packed[..cut]).is_err(), "cut at {cut}");
        }
        let at = packed.windows(4).position(|w| w == b"[]\0\0").expect("the content of a.golden.json");
        let mut changed = packed;
        changed[at] = b'{';
        assert!(matches!(open(&changed), Err(BundleError::Mismatch { .. })));
    }

    /// A file in an archive, with entries before it that say how it is called.
    fn named(extensions: &[(tar::EntryType, &[u8])]) -> Result<Bundle, BundleError> {
        let sha256 = hex::encode(Sha256::digest(b"{}"));
        let path = format!("deep/{}.json", "x".repeat(150));
        let manifest =
            format!(r#"{{"version":1,"files":[{{"path":"{path}","role":"seed","size":2,"sha256":"{sha256}"}}]}}"#);
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, MANIFEST, manifest.len() as u64, manifest.as_bytes()).expect("appends");
        for (kind, content) in extensions {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, "long", *content).expect("appends");
        }
        append(&mut archive, "short", 2, b"{}".as_slice()).expect("appends");
        open(&archive.into_inner().expect("finishes"))
    }

    /// Archives are written with many programs, and a name may claim to have gigabytes.
    #[test]
    fn long_names_are_bounded() {
        let path = format!("deep/{}.json", "x".repeat(150));
        let pax = |key: &str, value: &str| {
            let rest = format!(" {key}={value}\n");
            let len = (1..10_000_000).find(|len: &usize| len.to_string().len() + rest.len() == *len).expect("a length");
            format!("{len}{rest}").into_bytes()
        };
        let (gnu, xheader) = (tar::EntryType::GNULongName, tar::EntryType::XHeader);
        named(&[(gnu, format!("{path}\0").as_bytes())]).expect("GNU's way");
        named(&[(xheader, &[pax("mtime", "1.5"), pax("path", &path)].concat())]).expect("POSIX's way");
        for (kind, content) in [(gnu, vec![b'a'; 1 << 20]), (xheader, pax("path", &"a".repeat(1 << 20)))] {
            assert!(matches!(named(&[(kind, &content)]), Err(BundleError::TooLarge(_))));
        }
        assert!(matches!(named(&[(xheader, &pax("size", "9"))]), Err(BundleError::TooLarge(_))));
        assert!(named(&[(xheader, b"12 no pair\n")]).is_err());
    }

    #[test]
    fn links_are_refused() {
        let mut archive = tar::Builder::new(Vec::new());
        let manifest = br#"{"version":1,"files":[]}"#.as_slice();
        append(&mut archive, MANIFEST, manifest.len() as u64, manifest).expect("appends");
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, "a", "/etc/passwd").expect("appends");
        let bytes = archive.into_inner().expect("finishes");
        assert!(matches!(open(&bytes), Err(BundleError::Path { .. })));
    }
}
