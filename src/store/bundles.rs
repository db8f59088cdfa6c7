//! Bundles as files named by their digest, in one directory.
//!
//! A bundle is written under another name first and renamed when its digest is right, so that a file under its final
//! name is whole. When the files exceed the limit, the oldest that no run uses go first.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::guard::make_private;
use crate::bundle;
use crate::limits::RESERVED_DISK;

/// The folder of bundles in the data directory.
pub const DIR: &str = "bundles";
/// What the names of bundles that are being received begin with.
const INCOMING: &str = "incoming-";

/// Time that a bundle stays which no run uses yet.
const FRESH: Duration = Duration::from_mins(1);
/// Bytes of a bundle that are hashed and written at a time.
const PIECE: usize = 256 << 10;

/// The directory of bundles.
#[derive(Debug)]
pub struct Bundles {
    dir: PathBuf,
    limit: u64,
    /// What came of late, and when: no run may use it yet, and by the clock of the machine it may be old.
    fresh: Arc<Mutex<HashMap<[u8; 32], Instant>>>,
}

/// Why a bundle cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum BundlesError {
    /// The disk does not do as asked.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it did not work.
        #[source]
        source: io::Error,
    },
    /// What was sent is not what was announced.
    #[error("the bundle is not what was announced: {0}")]
    Mismatch(String),
    /// No such bundle.
    #[error("there is no bundle {0}")]
    Missing(String),
    /// The disk is nearly full.
    #[error("the disk of the daemon's data directory has {free} bytes left, which the runs need that go on")]
    NoRoom {
        /// Bytes that are free.
        free: u64,
    },
}

impl BundlesError {
    /// Whether the disk is full.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::NoRoom { .. } => true,
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            Self::Mismatch(_) | Self::Missing(_) => false,
        }
    }
}

impl Bundles {
    /// The bundles below `data_dir`, which together take `limit` bytes at most, as far as runs do not need more.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(data_dir: &Path, limit: u64) -> Result<Self, BundlesError> {
        let dir = data_dir.join(DIR);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| BundlesError::Io { doing: "making", path: dir.clone(), source })?;
        make_private(&dir, 0o700);
        // What a daemon that died was receiving will never be whole.
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(INCOMING) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self { dir, limit, fresh: Arc::default() })
    }

    /// Whether a bundle is there.
    pub async fn contains(&self, digest: &[u8; 32]) -> bool {
        tokio::fs::try_exists(self.path(digest)).await.unwrap_or(false)
    }

    /// How large a bundle is.
    ///
    /// # Errors
    /// When it is missing, or cannot be looked at.
    pub async fn size(&self, digest: &[u8; 32]) -> Result<u64, BundlesError> {
        let path = self.path(digest);
        match tokio::fs::metadata(&path).await {
            Ok(file) => Ok(file.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BundlesError::Missing(hex::encode(digest))),
            Err(source) => Err(BundlesError::Io { doing: "reading", path, source }),
        }
    }

    /// The file of a bundle, checked against its name. It can be read as long as it is held, whatever becomes of
    /// the bundle.
    ///
    /// # Errors
    /// When it is missing, cannot be read, or was changed.
    pub async fn file(&self, digest: &[u8; 32]) -> Result<Arc<File>, BundlesError> {
        let (path, expected) = (self.path(digest), *digest);
        let checked = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                let file = File::open(&path)?;
                let is_right = bundle::digest(io::BufReader::with_capacity(1 << 20, &file))? == expected;
                io::Result::Ok((file, is_right))
            })
        };
        match checked.await.unwrap_or_else(|died| Err(io::Error::other(died))) {
            Ok((file, true)) => return Ok(Arc::new(file)),
            // A file that is not what its name says is of no use to anybody: the client will send the bundle again.
            Ok((_, false)) => drop(tokio::fs::remove_file(&path).await),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(BundlesError::Io { doing: "reading", path, source }),
        }
        Err(BundlesError::Missing(hex::encode(digest)))
    }

    /// Whether the disk has room for something new: what is left of it is for runs that go on.
    ///
    /// # Errors
    /// When it has not.
    pub fn has_room(&self) -> Result<(), BundlesError> {
        // A disk that cannot be asked is one that has trouble of its own, which the write will show.
        let Ok(disk) = rustix::fs::statvfs(&self.dir) else { return Ok(()) };
        let (free, all) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
        if free < RESERVED_DISK.min(all / 10) { Err(BundlesError::NoRoom { free }) } else { Ok(()) }
    }

    /// Begins to take a bundle of `size` bytes.
    ///
    /// # Errors
    /// When no file can be made for it, or the disk is nearly full.
    pub fn receive(&self, digest: [u8; 32], size: u64) -> Result<Incoming, BundlesError> {
        self.has_room()?;
        let dir = self.dir.clone();
        let temp = tempfile::Builder::new().prefix(INCOMING).tempfile_in(&dir);
        let temp = temp.map_err(|source| BundlesError::Io { doing: "making a file in", path: dir, source })?;
        let (file, temp) = temp.into_parts();
        let file = tokio::fs::File::from_std(file);
        let (path, fresh) = (self.path(&digest), Arc::clone(&self.fresh));
        Ok(Incoming { temp, file, hasher: Sha256::new(), received: 0, digest, size, path, fresh })
    }

    /// Removes the oldest bundles until the rest fits; `used` are those that runs may still need. Those that came a
    /// moment ago stay: the client that sent them is about to name them.
    pub async fn prune(&self, used: HashSet<[u8; 32]>) {
        let (dir, limit, mut used) = (self.dir.clone(), self.limit, used);
        {
            let mut fresh = self.fresh.lock();
            fresh.retain(|_, came| came.elapsed() < FRESH);
            used.extend(fresh.keys());
        }
        let pruned = tokio::task::spawn_blocking(move || prune(&dir, limit, &used)).await;
        if let Ok(Err(error)) = pruned {
            tracing::warn!(%error, "old bundles could not be removed");
        }
    }

    fn path(&self, digest: &[u8; 32]) -> PathBuf {
        self.dir.join(hex::encode(digest))
    }
}

fn prune(dir: &Path, limit: u64, used: &HashSet<[u8; 32]>) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf, bool)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        let mut digest = [0; 32];
        let is_bundle = hex::decode_to_slice(entry.file_name().to_string_lossy().as_bytes(), &mut digest).is_ok();
        if is_bundle {
            files.push((meta.modified()?, meta.len(), entry.path(), used.contains(&digest)));
        }
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, size, ..)| size).sum();
    for (_, size, path, is_used) in files {
        if bytes > limit && !is_used {
            std::fs::remove_file(path)?;
            bytes -= size;
        }
    }
    Ok(())
}

/// A bundle that is being received. Dropped before [`Incoming::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct Incoming {
    temp: tempfile::TempPath,
    file: tokio::fs::File,
    hasher: Sha256,
    received: u64,
    digest: [u8; 32],
    size: u64,
    path: PathBuf,
    fresh: Arc<Mutex<HashMap<[u8; 32], Instant>>>,
}

impl Incoming {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When there are more than announced, or they cannot be written.
    pub async fn write(&mut self, chunk: &[u8]) -> Result<(), BundlesError> {
        self.received += chunk.len() as u64;
        if self.received > self.size {
            return Err(BundlesError::Mismatch(format!("more than the {} bytes announced came", self.size)));
        }
        // In pieces, so that a large one keeps no runtime thread from others for long.
        for piece in chunk.chunks(PIECE) {
            self.hasher.update(piece);
            self.file.write_all(piece).await.map_err(|source| self.io("writing", source))?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Keeps the bundle, now that all of it is here.
    ///
    /// # Errors
    /// When it is not what was announced, or cannot be kept.
    pub async fn finish(mut self) -> Result<(), BundlesError> {
        if self.received != self.size {
            return Err(BundlesError::Mismatch(format!("{} bytes were announced, {} came", self.size, self.received)));
        }
        if self.hasher.clone().finalize().as_slice() != self.digest {
            return Err(BundlesError::Mismatch("its SHA-256 is another one".to_owned()));
        }
        self.file.flush().await.map_err(|source| self.io("writing", source))?;
        self.file.sync_all().await.map_err(|source| self.io("writing", source))?;
        let path = self.path.clone();
        self.fresh.lock().insert(self.digest, Instant::now());
        self.temp.persist(&path).map_err(|error| BundlesError::Io { doing: "keeping", path, source: error.error })
    }

    fn io(&self, doing: &'static str, source: io::Error) -> BundlesError {
        BundlesError::Io { doing, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn put(bundles: &Bundles, content: &[u8]) -> [u8; 32] {
        let digest = bundle::digest(content).expect("reads");
        let mut incoming = bundles.receive(digest, content.len() as u64).expect("begins");
        incoming.write(content).await.expect("takes bytes");
        incoming.finish().await.expect("is kept");
        digest
    }

    #[tokio::test]
    async fn what_is_kept_is_what_was_announced() {
        let dir = tempfile::tempdir().expect("a directory");
        let bundles = Bundles::open(dir.path(), 1000).expect("opens");
        let digest = put(&bundles, b"hello").await;
        let file = bundles.file(&digest).await.expect("is there");
        assert_eq!(io::read_to_string(&*file).expect("reads"), "", "it was read to its end when it was checked");
        assert_eq!(file.metadata().expect("a file").len(), 5);

        let mut short = bundles.receive([1; 32], 5).expect("begins");
        short.write(b"hel").await.expect("takes bytes");
        assert!(matches!(short.finish().await, Err(BundlesError::Mismatch(_))));
        let mut long = bundles.receive([1; 32], 2).expect("begins");
        assert!(matches!(long.write(b"hel").await, Err(BundlesError::Mismatch(_))));
        let mut other = bundles.receive([1; 32], 3).expect("begins");
        other.write(b"hel").await.expect("takes bytes");
        assert!(matches!(other.finish().await, Err(BundlesError::Mismatch(_))));
        drop(long);
        assert_eq!(std::fs::read_dir(dir.path().join("bundles")).expect("reads").count(), 1, "nothing is left behind");
    }

    #[tokio::test]
    async fn a_changed_file_is_no_bundle() {
        let dir = tempfile::tempdir().expect("a directory");
        let bundles = Bundles::open(dir.path(), 1000).expect("opens");
        let digest = put(&bundles, b"hello").await;
        std::fs::write(bundles.path(&digest), b"hullo").expect("writes");
        assert!(matches!(bundles.file(&digest).await, Err(BundlesError::Missing(_))));
        assert!(!bundles.contains(&digest).await);
    }

    #[tokio::test]
    async fn the_oldest_unused_bundles_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let bundles = Bundles::open(dir.path(), 10).expect("opens");
        let used = put(&bundles, b"aaaaaa").await;
        let unused = put(&bundles, b"bbbbbb").await;
        let newest = put(&bundles, b"cccccc").await;
        bundles.prune(HashSet::from([used, newest])).await;
        assert!(bundles.contains(&unused).await, "it came a moment ago");
        bundles.fresh.lock().clear();
        bundles.prune(HashSet::from([used, newest])).await;
        assert!(bundles.contains(&used).await && bundles.contains(&newest).await);
        assert!(!bundles.contains(&unused).await);
    }
}
