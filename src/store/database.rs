//! The SQL: everything that is asked of the database, in words that SQLite and PostgreSQL both know.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use prost::Message as _;
use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Row as _, SqlSafeStr as _};

use super::StoreError;
use crate::event::{Run, State};
use crate::verdict::{Blame, Cause, Outcome};
use crate::wire::control as pb;
use crate::wire::run::{run_from_proto, run_to_proto};

/// Connections, of which one writes.
const CONNECTIONS: u32 = 4;
/// How often the session that holds the lock is looked at.
const PING: Duration = Duration::from_secs(5);
/// Time for a connection, and for a lock of the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most rows of one statement: each value is looked for among all of them.
const ROWS: usize = 64;

static DRIVERS: Once = Once::new();

/// Names the lock of a daemon among those of a PostgreSQL database.
const LOCK: i64 = 0x464f_5247_4501;

/// An open database, with the tables of this version.
#[derive(Debug, Clone)]
pub(super) struct Database {
    pool: AnyPool,
    /// What keeps other daemons out, as long as it is there.
    guard: Arc<Guard>,
}

/// Two daemons on one database would take up each other's runs.
enum Guard {
    /// The database stands in a directory that is locked.
    Directory,
    /// A locked file beside that of SQLite.
    File(#[expect(dead_code, reason = "held, not used")] File),
    /// A session of PostgreSQL that holds a lock, and where.
    Session(tokio::sync::Mutex<AnyConnection>, String),
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Some events of a run that follow each other, as they are stored.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) run_id: String,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) body: Vec<u8>,
}

/// What came of a case, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseRow {
    /// The run.
    pub run_id: String,
    /// Path of the suite.
    pub suite: String,
    /// Id of the case there.
    pub case_id: String,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// The attempt that the verdict is about, from 1.
    pub attempt: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it did not pass.
    pub cause: Option<Cause>,
    /// Who is to blame.
    pub blame: Option<Blame>,
    /// Whether it passed after it had failed.
    pub flaky: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// When the verdict was there.
    pub at: Timestamp,
}

/// A run as it is stored.
pub(super) struct RunRow {
    pub(super) run: Run,
    pub(super) body: Vec<u8>,
}

impl RunRow {
    pub(super) fn of(run: Run) -> Self {
        let body = run_to_proto(&run).encode_to_vec();
        Self { run, body }
    }
}

/// What belongs together: all of it is written, or nothing.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) blocks: Vec<Block>,
    pub(super) cases: Vec<CaseRow>,
    pub(super) runs: Vec<RunRow>,
}

/// Which runs are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those older than this one.
    pub before: Option<String>,
    /// Only those of this agent, by the name that the runs use.
    pub agent: Option<String>,
    /// Only those with this suite, by its path.
    pub suite: Option<String>,
    /// Only those with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those in one of these states. Empty: all.
    pub states: Vec<State>,
    /// Only those that were created at this time or later.
    pub since: Option<Timestamp>,
    /// Only those that were created before this time.
    pub until: Option<Timestamp>,
}

impl Database {
    /// Opens a database, and makes or changes its tables as this version needs them. `url`: `sqlite://PATH` or `postgres://…`.
    /// `is_guarded`: nobody else can have it.
    pub(super) async fn open(url: &str, is_guarded: bool) -> Result<Self, StoreError> {
        // Made if it is not there, as the default is.
        let url = &match url.strip_prefix("sqlite:").map(|rest| rest.split_once('?')) {
            None => url.to_owned(),
            Some(Some((_, query))) if query.contains("mode=") => url.to_owned(),
            Some(query) => format!("{url}{}mode=rwc", if query.is_some() { '&' } else { '?' }),
        };
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let is_sqlite = url.starts_with("sqlite:");
        // A pool would try again and again what is wrong once and for all.
        let mut first = AnyConnection::connect(url).await?;
        if is_sqlite {
            prepare(&mut first).await?;
        }
        let guard = match file_of(url) {
            _ if is_guarded => Guard::Directory,
            Some(file) => Guard::File(lock_file(&file)?),
            None if is_sqlite => Guard::Directory,
            None => {
                lock_session(&mut first).await?;
                Guard::Session(tokio::sync::Mutex::new(first), url.to_owned())
            }
        };
        let options = AnyPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
        let options = options.after_connect(move |connection, _| {
            Box::pin(async move {
                if is_sqlite {
                    prepare(connection).await?;
                }
                Ok(())
            })
        });
        let pool = options.connect(url).await?;
        let sql = include_str!("migrations/0001_runs.sql").into_sql_str();
        let migrations = vec![Migration::new(1, "runs".into(), MigrationType::Simple, sql, false)];
        Migrator::with_migrations(migrations).run(&pool).await.map_err(|error| match error {
            MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => {
                StoreError::Newer(version)
            }
            other => StoreError::Database(super::chain(&other)),
        })?;
        Ok(Self { pool, guard: Arc::new(guard) })
    }

    /// Watches the lock of PostgreSQL, which ends with its session; returns when another daemon has it.
    pub(super) async fn keep(&self) -> StoreError {
        let Guard::Session(session, url) = &*self.guard else { return std::future::pending().await };
        loop {
            tokio::time::sleep(PING).await;
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

    /// The address of a SQLite database in a file.
    pub(super) fn file_url(path: &Path) -> String {
        // In an address, these have a meaning of their own.
        let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        format!("sqlite://{path}?mode=rwc")
    }

    /// Writes batches in one transaction: all, or nothing.
    pub(super) async fn write(&self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let blocks: Vec<&Block> = batches.iter().flat_map(|batch| &batch.blocks).collect();
        for rows in chunks(&blocks) {
            let sql = format!(
                "INSERT INTO events (run_id, first_sequence, last_sequence, body) VALUES {}",
                places(rows.len(), 4)
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for Block { run_id, first, last, body } in rows {
                query = query.bind(run_id.clone()).bind(int(*first)).bind(int(*last)).bind(body.clone());
            }
            query.execute(&mut *transaction).await?;
        }
        // A statement must not change a row twice, and those of one run never come from two batches at a time.
        let cases: Vec<&CaseRow> = batches.iter().flat_map(|batch| &batch.cases).collect();
        for rows in chunks(&cases) {
            let sql = format!(
                "INSERT INTO cases (run_id, suite, case_id, repetition, attempt, outcome, cause, blame, flaky, duration_ms, at) \
                 VALUES {} ON CONFLICT (run_id, suite, case_id, repetition) DO UPDATE SET attempt = excluded.attempt, \
                 outcome = excluded.outcome, cause = excluded.cause, blame = excluded.blame, flaky = excluded.flaky, \
                 duration_ms = excluded.duration_ms, at = excluded.at",
                places(rows.len(), 11)
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for row in rows {
                query = query
                    .bind(row.run_id.clone())
                    .bind(row.suite.clone())
                    .bind(row.case_id.clone())
                    .bind(i64::from(row.repeat))
                    .bind(i64::from(row.attempt))
                    .bind(row.outcome.name())
                    .bind(row.cause.map(Cause::name))
                    .bind(row.blame.map(Blame::name))
                    .bind(i64::from(row.flaky))
                    .bind(int(row.duration_ms))
                    .bind(row.at.as_microsecond());
            }
            query.execute(&mut *transaction).await?;
        }
        for RunRow { run, body } in batches.iter().flat_map(|batch| &batch.runs) {
            let sql = "UPDATE runs SET state = $1, finished_at = $2, last_sequence = $3, body = $4 WHERE run_id = $5";
            sqlx::query(sql)
                .bind(run.state.name())
                .bind(run.finished_at.map(Timestamp::as_microsecond))
                .bind(int(run.last_sequence))
                .bind(body.clone())
                .bind(run.run_id.clone())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Whether a batch is stored though nobody said so: the answer to a commit may be lost.
    pub(super) async fn is_stored(&self, batch: &Batch) -> Result<bool, StoreError> {
        let Some(Block { run_id, first, body, .. }) = batch.blocks.last() else { return Ok(false) };
        let sql = "SELECT body FROM events WHERE run_id = $1 AND first_sequence = $2";
        let row = sqlx::query(sql).bind(run_id.clone()).bind(int(*first)).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| get::<Vec<u8>>(&row, 0)).transpose()?.is_some_and(|stored| stored == *body))
    }

    /// Adds a run; `false` when there is one with this request id already.
    pub(super) async fn create(&self, row: &RunRow, request_id: &str) -> Result<bool, StoreError> {
        let sql = "INSERT INTO runs (run_id, request_id, agent, suites, labels, state, bundle, created_at, \
                   last_sequence, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9) ON CONFLICT (request_id) DO NOTHING";
        let run = &row.run;
        let created = sqlx::query(sql)
            .bind(run.run_id.clone())
            .bind((!request_id.is_empty()).then(|| request_id.to_owned()))
            .bind(run.spec.agent_id.clone())
            .bind(lines(run.spec.suites.iter().cloned()))
            .bind(lines(run.spec.labels.iter().map(|(key, value)| format!("{key}={value}"))))
            .bind(run.state.name())
            .bind(hex::encode(run.spec.bundle))
            .bind(run.created_at.as_microsecond())
            .bind(row.body.clone())
            .execute(&self.pool)
            .await?;
        Ok(created.rows_affected() > 0)
    }

    /// The run of that id.
    pub(super) async fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        let sql = "SELECT body FROM runs WHERE run_id = $1";
        let row = sqlx::query(sql).bind(run_id.to_owned()).fetch_optional(&self.pool).await?;
        row.map(|row| read_run(&row)).transpose()
    }

    /// The run that was created with that request id.
    pub(super) async fn run_of_request(&self, request_id: &str) -> Result<Option<Run>, StoreError> {
        let sql = "SELECT body FROM runs WHERE request_id = $1";
        let row = sqlx::query(sql).bind(request_id.to_owned()).fetch_optional(&self.pool).await?;
        row.map(|row| read_run(&row)).transpose()
    }

    /// Runs, newest first, and the id of the oldest of them if there are more behind it.
    pub(super) async fn runs(&self, filter: &Filter, limit: usize) -> Result<(Vec<Run>, Option<String>), StoreError> {
        let mut conditions = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let mut is = |condition: &str, value: &str| {
            texts.push(value.to_owned());
            let escape = if condition.ends_with("LIKE") { " ESCAPE '!'" } else { "" };
            conditions.push(format!("{condition} ${}{escape}", texts.len()));
        };
        if let Some(before) = &filter.before {
            is("run_id <", before);
        }
        if let Some(agent) = &filter.agent {
            is("agent =", agent);
        }
        if let Some(suite) = &filter.suite {
            is("suites LIKE", &pattern(suite));
        }
        for (key, value) in &filter.labels {
            is("labels LIKE", &pattern(&format!("{key}={value}")));
        }
        if !filter.states.is_empty() {
            let first = texts.len() + 1;
            let places: Vec<String> = (first..).take(filter.states.len()).map(|place| format!("${place}")).collect();
            conditions.push(format!("state IN ({})", places.join(", ")));
            texts.extend(filter.states.iter().map(|state| state.name().to_owned()));
        }
        let mut times = Vec::new();
        for (condition, at) in [("created_at >=", filter.since), ("created_at <", filter.until)] {
            let Some(at) = at else { continue };
            times.push(at.as_microsecond());
            conditions.push(format!("{condition} ${}", texts.len() + times.len()));
        }
        let conditions = if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") };
        // Ids of runs are in the order of time.
        let sql = format!("SELECT body, run_id FROM runs WHERE {conditions} ORDER BY run_id DESC LIMIT {}", limit + 1);
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for text in texts {
            query = query.bind(text);
        }
        for at in times {
            query = query.bind(at);
        }
        let mut rows = query.fetch_all(&self.pool).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let oldest = rows.last().filter(|_| has_more).map(|row| get(row, 1)).transpose()?;
        let readable = rows.iter().filter_map(|row| match read_run(row) {
            Ok(run) => Some(run),
            // One that cannot be read does not hide the others.
            Err(error) => {
                let run_id: Option<String> = get(row, 1).ok();
                tracing::error!(run = ?run_id, %error, "a run in the store cannot be read");
                None
            }
        });
        Ok((readable.collect(), oldest))
    }

    /// Ids of all runs but the newest so many that are over.
    pub(super) async fn old_runs(&self, keep: usize) -> Result<Vec<String>, StoreError> {
        let limit = i64::try_from(keep).unwrap_or(i64::MAX);
        let sql = "SELECT run_id FROM runs WHERE finished_at IS NOT NULL ORDER BY run_id DESC LIMIT 1000 OFFSET $1";
        let rows = sqlx::query(sql).bind(limit).fetch_all(&self.pool).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    /// How many runs there are.
    pub(super) async fn count(&self) -> Result<usize, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM runs").fetch_one(&self.pool).await?;
        Ok(usize::try_from(get::<i64>(&row, 0)?).unwrap_or(0))
    }

    /// How many runs are over.
    pub(super) async fn count_over(&self) -> Result<usize, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM runs WHERE finished_at IS NOT NULL").fetch_one(&self.pool).await?;
        Ok(usize::try_from(get::<i64>(&row, 0)?).unwrap_or(0))
    }

    /// Removes a run with everything that belongs to it.
    pub(super) async fn remove(&self, run_id: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        for sql in [
            "DELETE FROM events WHERE run_id = $1",
            "DELETE FROM cases WHERE run_id = $1",
            "DELETE FROM runs WHERE run_id = $1",
        ] {
            sqlx::query(sql).bind(run_id.to_owned()).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Blocks of a run that hold events with numbers above `after`, in order.
    pub(super) async fn blocks(&self, run_id: &str, after: u64, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        // By the key alone: to look at where blocks end would be to go through all of them.
        let sql = format!(
            "SELECT body FROM events WHERE run_id = $1 AND first_sequence >= (SELECT COALESCE(MAX(first_sequence), 0) \
             FROM events WHERE run_id = $1 AND first_sequence <= $2) ORDER BY first_sequence LIMIT {limit}"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(run_id.to_owned()).bind(int(after.saturating_add(1)));
        query.fetch_all(&self.pool).await?.iter().map(|row| get(row, 0)).collect()
    }

    /// The verdicts on cases of that id, in one suite or in all, newest run first, behind so many.
    pub(super) async fn history(
        &self,
        case_id: &str,
        suite: Option<&str>,
        limit: usize,
        behind: usize,
    ) -> Result<Vec<CaseRow>, StoreError> {
        let in_suite = if suite.is_some() { " AND suite = $2" } else { "" };
        let sql = format!(
            "SELECT run_id, suite, case_id, repetition, attempt, outcome, cause, blame, flaky, duration_ms, at FROM cases \
             WHERE case_id = $1{in_suite} ORDER BY run_id DESC, suite, repetition LIMIT {limit} OFFSET {behind}"
        );
        let mut query = sqlx::query(AssertSqlSafe(sql)).bind(case_id.to_owned());
        if let Some(suite) = suite {
            query = query.bind(suite.to_owned());
        }
        query.fetch_all(&self.pool).await?.iter().map(read_case).collect()
    }

    /// Digests of the bundles that runs use.
    pub(super) async fn bundles(&self) -> Result<Vec<[u8; 32]>, StoreError> {
        let rows = sqlx::query("SELECT DISTINCT bundle FROM runs").fetch_all(&self.pool).await?;
        let digest = |row: &AnyRow| {
            let text: String = get(row, 0)?;
            let digest = hex::decode(&text).ok().and_then(|bytes| bytes.try_into().ok());
            digest.ok_or_else(|| StoreError::Corrupt(format!("{text:?} is no digest of a bundle")))
        };
        rows.iter().map(digest).collect()
    }

    /// Agents that clients have added: name, address, labels as JSON.
    pub(super) async fn agents(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        let rows = sqlx::query("SELECT name, url, labels FROM agents").fetch_all(&self.pool).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?))).collect()
    }

    /// Adds an agent, or replaces it.
    pub(super) async fn put_agent(&self, name: &str, url: &str, labels: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO agents (name, url, labels) VALUES ($1, $2, $3) \
                   ON CONFLICT (name) DO UPDATE SET url = excluded.url, labels = excluded.labels";
        sqlx::query(sql).bind(name.to_owned()).bind(url.to_owned()).bind(labels.to_owned()).execute(&self.pool).await?;
        Ok(())
    }

    /// Forgets an agent.
    pub(super) async fn remove_agent(&self, name: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM agents WHERE name = $1").bind(name.to_owned()).execute(&self.pool).await?;
        Ok(())
    }

    /// Closes all connections; what was committed is in the file.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// The file of a SQLite database; `None`: it is in no file, or it is no SQLite.
fn file_of(url: &str) -> Option<PathBuf> {
    let options: SqliteConnectOptions = url.parse().ok()?;
    // One file has one lock, however it is called.
    options.get_filename().canonicalize().ok()
}

fn lock_file(database: &Path) -> Result<File, StoreError> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    let failed = |error: std::io::Error| StoreError::Database(format!("{}: {error}", path.display()));
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Takes the lock in a new session.
async fn relock(url: &str) -> Result<AnyConnection, StoreError> {
    let connected = tokio::time::timeout(PATIENCE, AnyConnection::connect(url)).await;
    let silent = |_| StoreError::Database("no connection".to_owned());
    let mut session = connected.map_err(silent)??;
    lock_session(&mut session).await?;
    Ok(session)
}

/// Takes the lock of PostgreSQL that a daemon holds; the session of one that was killed may last a moment longer.
async fn lock_session(session: &mut AnyConnection) -> Result<(), StoreError> {
    let begun = Instant::now();
    loop {
        let row = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut *session).await?;
        if get::<bool>(&row, 0)? {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(StoreError::InUse);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Sets up a connection to SQLite. What is committed survives the end of this process, though not that of the machine.
async fn prepare(connection: &mut AnyConnection) -> sqlx::Result<()> {
    for pragma in ["PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", "PRAGMA busy_timeout = 10000"] {
        sqlx::query(pragma).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Texts between line breaks.
fn lines(texts: impl Iterator<Item = String>) -> String {
    texts.fold("\n".to_owned(), |all, text| all + &text + "\n")
}

/// A pattern that finds one of [`lines`].
fn pattern(text: &str) -> String {
    format!("%\n{}\n%", text.replace('!', "!!").replace('%', "!%").replace('_', "!_"))
}

/// Rows in pieces whose lengths are powers of two, so that few statements have to be prepared.
fn chunks<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let length = 1 << rows.len().min(ROWS).checked_ilog2()?;
        let (piece, rest) = rows.split_at(length);
        rows = rest;
        Some(piece)
    })
}

/// `($1, $2), ($3, $4)` for so many rows and columns.
fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// A value of a row; one of another type stands there only in a file that is not ours.
fn get<'r, T>(row: &'r AnyRow, column: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Any> + sqlx::Type<sqlx::Any>,
{
    row.try_get(column).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A word of a list, if there is one.
fn word<T>(row: &AnyRow, column: usize, named: fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
    let word: Option<String> = get(row, column)?;
    let read = |word: String| named(&word).ok_or_else(|| StoreError::Corrupt(format!("{word:?} is no known word")));
    word.map(read).transpose()
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn read_run(row: &AnyRow) -> Result<Run, StoreError> {
    let body: Vec<u8> = get(row, 0)?;
    let run = pb::Run::decode(body.as_slice()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    run_from_proto(run).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn read_case(row: &AnyRow) -> Result<CaseRow, StoreError> {
    let small = |column: usize| Ok::<_, StoreError>(u32::try_from(get::<i64>(row, column)?).unwrap_or(u32::MAX));
    let at = Timestamp::from_microsecond(get(row, 10)?).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(CaseRow {
        run_id: get(row, 0)?,
        suite: get(row, 1)?,
        case_id: get(row, 2)?,
        repeat: small(3)?,
        attempt: small(4)?,
        outcome: word(row, 5, Outcome::named)?.ok_or_else(|| StoreError::Corrupt("a verdict is empty".to_owned()))?,
        cause: word(row, 6, Cause::named)?,
        blame: word(row, 7, Blame::named)?,
        flaky: get::<i64>(row, 8)? != 0,
        duration_ms: u64::try_from(get::<i64>(row, 9)?).unwrap_or(0),
        at,
    })
}
