//! What keeps other daemons off a store: two on one would take up each other's runs.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AnyConnection, Connection as _, Row as _};

use super::StoreError;
use super::connections::PATIENCE;

/// How often it is looked whether the lock still holds.
const LOOK: Duration = Duration::from_secs(5);
/// The same for a file, which costs next to nothing.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);
/// Names the lock of a daemon among those of a PostgreSQL database.
const LOCK: i64 = 0x464f_5247_4501;

/// A file that belongs to one daemon at a time, by whichever name it is called.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    path: PathBuf,
}

impl LockedFile {
    /// Opens a file, which is made if need be, for nobody else to read.
    ///
    /// # Errors
    /// When it cannot be opened; of the kind `WouldBlock` when another daemon has it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path: path.to_owned() }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns when the file is not where it was any more: the next daemon would find another one, and not be kept out.
    pub async fn gone(&self) {
        loop {
            tokio::time::sleep(LOOK_AT_FILE).await;
            if self.is_gone() {
                return;
            }
        }
    }

    /// Whether it is not where it was any more.
    fn is_gone(&self) -> bool {
        let here = std::fs::metadata(&self.path).map(|meta| (meta.dev(), meta.ino()));
        let ours = self.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        match (here, ours) {
            (Ok(here), Ok(ours)) => here != ours,
            (Err(error), _) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "a file of the store cannot be looked at");
                false
            }
            _ => true,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it from everybody else's eyes.
    pub fn make_private(&self) {
        make_private(&self.path, 0o600);
    }
}

/// Takes a file or a folder from everybody else's eyes, if it is ours.
pub fn make_private(path: &Path, mode: u32) {
    let Ok(meta) = std::fs::metadata(path) else { return };
    let is_for_others = meta.permissions().mode() & 0o077 != 0;
    if !is_for_others {
        return;
    }
    if let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(mode)) {
        tracing::warn!(path = %path.display(), %error, "others may read what the daemon keeps");
    }
}

/// What keeps others out, as long as it is there.
#[derive(Debug)]
pub(super) enum Guard {
    /// The database is in no file.
    Nothing,
    /// The file of SQLite.
    File(LockedFile),
    /// A session of PostgreSQL that holds a lock, and where.
    Session(tokio::sync::Mutex<AnyConnection>, String),
}

impl Guard {
    /// Takes the lock of a database.
    pub(super) async fn take(url: &str) -> Result<Self, StoreError> {
        if !url.starts_with("sqlite:") {
            let mut session = AnyConnection::connect(url).await?;
            lock_session(&mut session).await?;
            return Ok(Self::Session(tokio::sync::Mutex::new(session), url.to_owned()));
        }
        let Ok(options) = url.parse::<SqliteConnectOptions>() else { return Ok(Self::Nothing) };
        let path = options.get_filename();
        let is_made = url.contains("mode=rwc");
        if path.as_os_str() == ":memory:" || url.contains("mode=memory") || !is_made && !path.exists() {
            return Ok(Self::Nothing);
        }
        LockedFile::open(path).map(Self::File).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::InUse,
            _ => StoreError::Database(format!("{}: {error}", path.display())),
        })
    }

    /// Why nothing else matters: the file of the database is gone.
    pub(super) fn lost(&self) -> Option<StoreError> {
        match self {
            Self::File(file) if file.is_gone() => Some(StoreError::Gone(file.path().to_owned())),
            Self::File(_) | Self::Session(..) | Self::Nothing => None,
        }
    }

    /// Watches the lock; returns when it is gone, or another daemon has it.
    pub(super) async fn keep(&self) -> StoreError {
        match self {
            Self::Nothing => std::future::pending().await,
            Self::File(file) => {
                file.gone().await;
                StoreError::Gone(file.path().to_owned())
            }
            Self::Session(session, url) => keep_session(session, url).await,
        }
    }

    /// What SQLite makes beside its file has the same permissions.
    pub(super) fn make_private(&self) {
        let Self::File(file) = self else { return };
        file.make_private();
        for ending in ["-wal", "-shm"] {
            let mut beside = file.path().as_os_str().to_owned();
            beside.push(ending);
            make_private(Path::new(&beside), 0o600);
        }
    }
}

/// The lock of PostgreSQL ends with its session, and is taken again then.
async fn keep_session(session: &tokio::sync::Mutex<AnyConnection>, url: &str) -> StoreError {
    loop {
        tokio::time::sleep(LOOK).await;
        let mut session = session.lock().await;
        let alive = tokio::time::timeout(PATIENCE, sqlx::query("SELECT 1").execute(&mut *session)).await;
        if matches!(alive, Ok(Ok(_))) {
            continue;
        }
        tracing::warn!("the session that holds the lock of the store is gone; it is taken again");
        match relock(url).await {
            Ok(again) => *session = again,
            Err(StoreError::InUse) => return StoreError::InUse,
            // Without a database there is nothing that another daemon could take.
            Err(error) => tracing::warn!(%error, "the lock of the store cannot be taken again yet"),
        }
    }
}

/// Takes the lock in a new session.
async fn relock(url: &str) -> Result<AnyConnection, StoreError> {
    let connected = tokio::time::timeout(PATIENCE, AnyConnection::connect(url)).await;
    let silent = |_| StoreError::Away("no connection".to_owned());
    let mut session = connected.map_err(silent)??;
    lock_session(&mut session).await?;
    Ok(session)
}

/// Takes the lock of PostgreSQL that a daemon holds; the session of one that was killed may last a moment longer.
async fn lock_session(session: &mut AnyConnection) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        let row = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut *session).await?;
        if row.try_get(0).unwrap_or(false) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(StoreError::InUse);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
