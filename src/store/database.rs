//! The SQL: everything that is asked of the database, in words that SQLite and PostgreSQL both know.

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::{FutureExt as _, TryStreamExt as _};
use jiff::Timestamp;
use prost::Message as _;
use sqlx::any::AnyRow;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, SqlSafeStr as _};

use super::connections::{Connections, prepare};
use super::guard::Guard;
use super::rows::{Batch, Block, CaseRow, Filter, RunRow, get, int, read_case, read_head, read_run};
use super::{BLOCK_BYTES, StoreError};
use crate::event::Run;
use crate::limits::LIST_BYTES;
use crate::text::chain;
use crate::verdict::{Blame, Cause};
use crate::wire::control as pb;
use crate::wire::run::{head_to_proto, run_from_proto, run_to_proto};

/// Time for removing a run, whose log may be large.
const REMOVE: Duration = Duration::from_mins(2);
/// Most rows of one statement: a database has a limit of values.
const ROWS: usize = 64;

static DRIVERS: Once = Once::new();

/// An open database, with the tables of this version.
#[derive(Debug, Clone)]
pub(super) struct Database {
    connections: Connections,
    /// What keeps other daemons out, as long as it is there.
    guard: Arc<Guard>,
}

impl Database {
    /// Opens a database, and makes or changes its tables as this version needs them. `url`: `sqlite://PATH` or
    /// `postgres://…`.
    pub(super) async fn open(url: &str) -> Result<Self, StoreError> {
        // Made if it is not there, as the default is.
        let url = &match url.strip_prefix("sqlite:").map(|rest| rest.split_once('?')) {
            None => url.to_owned(),
            Some(Some((_, query))) if query.contains("mode=") => url.to_owned(),
            Some(query) => format!("{url}{}mode=rwc", if query.is_some() { '&' } else { '?' }),
        };
        DRIVERS.call_once(sqlx::any::install_default_drivers);
        let is_sqlite = url.starts_with("sqlite:");
        let guard = Guard::take(url).await?;
        if is_sqlite {
            // A pool would try again and again what is wrong once and for all.
            let mut first = AnyConnection::connect(url).await?;
            prepare(&mut first).await?;
            first.close().await?;
        }
        let connections = Connections::open(url, is_sqlite).await?;
        let migrations = [
            ("runs", include_str!("migrations/0001_runs.sql")),
            ("heads", include_str!("migrations/0002_heads.sql")),
            ("deaths", include_str!("migrations/0003_deaths.sql")),
        ];
        let migrations = (1..).zip(migrations).map(|(version, (name, sql))| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let migrations = migrations.collect();
        let pool = connections.writing.pool();
        Migrator::with_migrations(migrations).run(pool).await.map_err(|error| match error {
            MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => {
                StoreError::Newer(version)
            }
            other => StoreError::Database(chain(&other).replace('\n', " ")),
        })?;
        guard.make_private();
        let database = Self { connections, guard: Arc::new(guard) };
        database.add_heads().await?;
        Ok(database)
    }

    /// Gives heads to runs that an earlier version has stored.
    async fn add_heads(&self) -> Result<(), StoreError> {
        let rows = self.rows("SELECT run_id FROM runs WHERE head IS NULL", Vec::new()).await?;
        // One at a time: a run may be large.
        for row in rows {
            let run_id: String = get(&row, 0)?;
            self.connections
                .writing
                .with(move |connection| {
                    async move {
                        let sql = "SELECT body FROM runs WHERE run_id = $1";
                        let row = sqlx::query(sql).bind(run_id.clone()).fetch_one(&mut *connection).await?;
                        let body: Vec<u8> = get(&row, 0)?;
                        let run = pb::Run::decode(body.as_slice()).ok().and_then(|run| run_from_proto(run).ok());
                        // Of one that cannot be read nobody can say more.
                        let head = run.map(|run| head_to_proto(&run).encode_to_vec()).unwrap_or_default();
                        let sql = "UPDATE runs SET head = $1 WHERE run_id = $2";
                        sqlx::query(sql).bind(&head[..]).bind(run_id).execute(connection).await?;
                        Ok(())
                    }
                    .boxed()
                })
                .await?;
        }
        Ok(())
    }

    /// Watches what keeps other daemons out; returns when it is gone, or another daemon has it.
    pub(super) async fn keep(&self) -> StoreError {
        self.guard.keep().await
    }

    /// Why nothing else matters: its file is gone.
    pub(super) fn lost(&self) -> Option<StoreError> {
        self.guard.lost()
    }

    /// The address of a SQLite database in a file.
    pub(super) fn file_url(path: &Path) -> String {
        // In an address, these have a meaning of their own.
        let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        format!("sqlite://{path}?mode=rwc")
    }

    /// Writes batches in one transaction: all, or nothing.
    pub(super) async fn write(&self, batches: &[Arc<Batch>]) -> Result<(), StoreError> {
        let batches = batches.to_vec();
        self.connections.writing.with(move |connection| async move { write(connection, &batches).await }.boxed()).await
    }

    /// Whether a batch is stored though nobody said so: the answer to a commit may be lost.
    pub(super) async fn is_stored(&self, batch: &Batch) -> Result<bool, StoreError> {
        let Some(Block { run_id, first, body, .. }) = batch.blocks.last().cloned() else { return Ok(false) };
        self.connections
            .writing
            .with(move |connection| {
                async move {
                    let sql = "SELECT body FROM events WHERE run_id = $1 AND first_sequence = $2";
                    let row = sqlx::query(sql).bind(run_id).bind(int(first)).fetch_optional(connection).await?;
                    Ok(row.map(|row| get::<Vec<u8>>(&row, 0)).transpose()?.is_some_and(|stored| stored == body))
                }
                .boxed()
            })
            .await
    }

    /// Adds a run; `false` when there is one with this request id already.
    pub(super) async fn create(&self, run: &Run, request_id: &str) -> Result<bool, StoreError> {
        let (agent, suites) = (run.spec.agent_id.clone(), lines(run.spec.suites.iter().cloned()));
        let labels = lines(run.spec.labels.iter().map(|(key, value)| format!("{key}={value}")));
        let (run_id, bundle) = (run.run_id.clone(), hex::encode(run.spec.bundle));
        let (state, created_at) = (run.state.name(), run.created_at.as_microsecond());
        let (head, body) = (head_to_proto(run).encode_to_vec(), run_to_proto(run).encode_to_vec());
        let request_id = (!request_id.is_empty()).then(|| request_id.to_owned());
        self.connections
            .writing
            .with(move |connection| {
                async move {
                    let sql = "INSERT INTO runs (run_id, request_id, agent, suites, labels, state, bundle, created_at, \
                           last_sequence, head, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10) \
                           ON CONFLICT (request_id) DO NOTHING";
                    let query = sqlx::query(sql).bind(run_id).bind(request_id).bind(agent).bind(suites).bind(labels);
                    let query = query.bind(state).bind(bundle).bind(created_at).bind(&head[..]).bind(&body[..]);
                    Ok(query.execute(connection).await?.rows_affected() > 0)
                }
                .boxed()
            })
            .await
    }

    /// The run of that id.
    pub(super) async fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        self.run_where("SELECT body, head FROM runs WHERE run_id = $1", run_id).await
    }

    /// The run that was created with that request id.
    pub(super) async fn run_of_request(&self, request_id: &str) -> Result<Option<Run>, StoreError> {
        self.run_where("SELECT body, head FROM runs WHERE request_id = $1", request_id).await
    }

    async fn run_where(&self, sql: &'static str, value: &str) -> Result<Option<Run>, StoreError> {
        let value = value.to_owned();
        self.connections
            .reading
            .with(move |connection| {
                async move {
                    let row = sqlx::query(sql).bind(value).fetch_optional(connection).await?;
                    row.map(|row| read_run(&row)).transpose()
                }
                .boxed()
            })
            .await
    }

    /// The heads of runs, newest first, as many as the limits allow; and the id of the oldest of them if there are more
    /// behind it.
    pub(super) async fn heads(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> Result<(Vec<pb::Run>, Option<String>), StoreError> {
        let (sql, texts, times) = select_heads(filter, limit);
        self.connections
            .reading
            .with(move |connection| {
                async move {
                    let mut query = sqlx::query(AssertSqlSafe(sql));
                    for text in texts {
                        query = query.bind(text);
                    }
                    for at in times {
                        query = query.bind(at);
                    }
                    let mut rows = query.fetch(connection);
                    let (mut heads, mut bytes, mut seen) = (Vec::new(), 0, None);
                    let mut number = 0;
                    while let Some(row) = rows.try_next().await? {
                        if number == limit || bytes > LIST_BYTES {
                            return Ok((heads, seen));
                        }
                        number += 1;
                        bytes += get::<Vec<u8>>(&row, 0).map_or(0, |head| head.len());
                        let run_id: Option<String> = get(&row, 1).ok();
                        match read_head(&row, 0) {
                            Ok(head) => heads.push(head),
                            // One that cannot be read does not hide the others.
                            Err(error) => tracing::error!(run = ?run_id, %error, "a run in the store cannot be read"),
                        }
                        seen = run_id.or(seen);
                    }
                    Ok((heads, None))
                }
                .boxed()
            })
            .await
    }

    /// The highest id of a run.
    pub(super) async fn newest_id(&self) -> Result<Option<String>, StoreError> {
        let rows = self.rows("SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1", Vec::new()).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    /// Ids of the runs that are over, without the newest `keep` of them; at most 1000.
    pub(super) async fn old_runs(&self, keep: usize) -> Result<Vec<String>, StoreError> {
        let limit = i64::try_from(keep).unwrap_or(i64::MAX);
        let sql = "SELECT run_id FROM runs WHERE finished_at IS NOT NULL ORDER BY run_id DESC LIMIT 1000 OFFSET $1";
        let rows = self.rows(sql, vec![Value::Int(limit)]).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }

    /// How many runs there are.
    pub(super) async fn count(&self) -> Result<usize, StoreError> {
        let rows = self.rows("SELECT COUNT(*) FROM runs", Vec::new()).await?;
        Ok(rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.try_into().unwrap_or(0))
    }

    /// How many runs are over.
    pub(super) async fn count_over(&self) -> Result<usize, StoreError> {
        let rows = self.rows("SELECT COUNT(*) FROM runs WHERE finished_at IS NOT NULL", Vec::new()).await?;
        Ok(rows.first().map_or(Ok(0), |row| get::<i64>(row, 0))?.try_into().unwrap_or(0))
    }

    /// Removes a run with everything that belongs to it.
    pub(super) async fn remove(&self, run_id: &str) -> Result<(), StoreError> {
        let run_id = run_id.to_owned();
        self.connections
            .writing
            .within(REMOVE, move |connection| {
                async move {
                    let mut transaction = connection.begin().await?;
                    for sql in [
                        "DELETE FROM events WHERE run_id = $1",
                        "DELETE FROM cases WHERE run_id = $1",
                        "DELETE FROM deaths WHERE run_id = $1",
                        "DELETE FROM runs WHERE run_id = $1",
                    ] {
                        sqlx::query(sql).bind(run_id.clone()).execute(&mut *transaction).await?;
                    }
                    Ok(transaction.commit().await?)
                }
                .boxed()
            })
            .await
    }

    /// Blocks of a run that hold events with numbers above `after`, in order: at most `limit`, and no more when they
    /// have [`BLOCK_BYTES`] together.
    pub(super) async fn blocks(&self, run_id: &str, after: u64, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let run_id = run_id.to_owned();
        let after = int(after.saturating_add(1));
        self.connections.reading.with(move |connection| {
            async move {
                // By the key alone: to look at where blocks end would be to go through all of them.
                let sql = format!(
                    "SELECT first_sequence, LENGTH(body) FROM events WHERE run_id = $1 AND first_sequence >= \
                     (SELECT COALESCE(MAX(first_sequence), 0) FROM events WHERE run_id = $1 AND first_sequence <= $2) \
                     ORDER BY first_sequence LIMIT {limit}"
                );
                let query = sqlx::query(AssertSqlSafe(sql)).bind(run_id.clone()).bind(after);
                let rows = query.fetch_all(&mut *connection).await?;
                let (mut range, mut bytes): (Option<(i64, i64)>, usize) = (None, 0);
                for row in rows {
                    if bytes >= BLOCK_BYTES {
                        break;
                    }
                    let first = get::<i64>(&row, 0)?;
                    range = Some((range.map_or(first, |(begin, _)| begin), first));
                    // As an integer of four bytes or of eight, as the database likes.
                    let length = get::<i64>(&row, 1).or_else(|_| get::<i32>(&row, 1).map(i64::from))?;
                    bytes += usize::try_from(length).unwrap_or(0);
                }
                let Some((begin, end)) = range else { return Ok(Vec::new()) };
                let sql = "SELECT body FROM events WHERE run_id = $1 AND first_sequence BETWEEN $2 AND $3 ORDER BY first_sequence";
                let rows = sqlx::query(sql).bind(run_id).bind(begin).bind(end).fetch_all(connection).await?;
                rows.iter().map(|row| get(row, 0)).collect()
            }
            .boxed()
        }).await
    }

    /// The verdicts on cases of that id, in one suite or in all, newest run first: at most `limit`, without the first
    /// `behind`; and how many rows that were, those included that cannot be read.
    pub(super) async fn history(
        &self,
        case_id: &str,
        suite: Option<&str>,
        limit: usize,
        behind: usize,
    ) -> Result<(Vec<CaseRow>, usize), StoreError> {
        let in_suite = if suite.is_some() { " AND suite = $2" } else { "" };
        let sql = format!(
            "SELECT run_id, suite, case_id, repetition, attempt, outcome, cause, blame, flaky, duration_ms, at FROM cases \
             WHERE case_id = $1{in_suite} ORDER BY run_id DESC, suite, repetition LIMIT {limit} OFFSET {behind}"
        );
        let values = [Some(case_id), suite].into_iter().flatten().map(|text| Value::Text(text.to_owned()));
        let rows = self.rows(sql, values.collect()).await?;
        Ok((rows.iter().filter_map(|row| readable(read_case(row), "a verdict")).collect(), rows.len()))
    }

    /// Digests of the bundles that runs use.
    pub(super) async fn bundles(&self) -> Result<Vec<[u8; 32]>, StoreError> {
        let rows = self.rows("SELECT DISTINCT bundle FROM runs", Vec::new()).await?;
        let digest = |row: &AnyRow| {
            let text: String = get(row, 0)?;
            let digest = hex::decode(&text).ok().and_then(|bytes| bytes.try_into().ok());
            digest.ok_or_else(|| StoreError::Corrupt(format!("{text:?} is no digest of a bundle")))
        };
        Ok(rows.iter().filter_map(|row| readable(digest(row), "the bundle of a run")).collect())
    }

    /// Agents that clients have added: name, address, labels as JSON.
    pub(super) async fn agents(&self) -> Result<Vec<(String, String, String)>, StoreError> {
        let rows = self.rows("SELECT name, url, labels FROM agents", Vec::new()).await?;
        let read = |row: &AnyRow| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?));
        Ok(rows.iter().filter_map(|row| readable(read(row), "an agent")).collect())
    }

    /// Adds an agent, or replaces it.
    pub(super) async fn put_agent(&self, name: &str, url: &str, labels: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO agents (name, url, labels) VALUES ($1, $2, $3) \
                   ON CONFLICT (name) DO UPDATE SET url = excluded.url, labels = excluded.labels";
        self.change(sql, &[name, url, labels]).await
    }

    /// Forgets an agent.
    pub(super) async fn remove_agent(&self, name: &str) -> Result<(), StoreError> {
        self.change("DELETE FROM agents WHERE name = $1", &[name]).await
    }

    /// Closes all connections; what was committed is in the file.
    pub(super) async fn close(&self) {
        self.connections.close().await;
    }

    /// All rows that a question has for an answer: few, and small ones.
    pub(super) async fn rows(&self, sql: impl Into<String>, values: Vec<Value>) -> Result<Vec<AnyRow>, StoreError> {
        let sql = sql.into();
        self.connections
            .reading
            .with(move |connection| {
                async move {
                    let mut query = sqlx::query(AssertSqlSafe(sql));
                    for value in values {
                        query = match value {
                            Value::Text(text) => query.bind(text),
                            Value::Int(number) => query.bind(number),
                        };
                    }
                    Ok(query.fetch_all(connection).await?)
                }
                .boxed()
            })
            .await
    }

    /// Changes something small.
    pub(super) async fn change(&self, sql: &'static str, values: &[&str]) -> Result<(), StoreError> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        self.connections
            .writing
            .with(move |connection| {
                async move {
                    let query = values.into_iter().fold(sqlx::query(sql), sqlx::query::Query::bind);
                    query.execute(connection).await?;
                    Ok(())
                }
                .boxed()
            })
            .await
    }
}

/// A value of a question.
pub(super) enum Value {
    Text(String),
    Int(i64),
}

/// What a row holds; one that cannot be read is told, and does not hide the others.
fn readable<T>(read: Result<T, StoreError>, what: &str) -> Option<T> {
    read.inspect_err(|error| tracing::error!(%error, "{what} in the store cannot be read, and is passed over")).ok()
}

/// The question for the heads of runs, with its texts and its times.
fn select_heads(filter: &Filter, limit: usize) -> (String, Vec<String>, Vec<i64>) {
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
    let sql = format!("SELECT head, run_id FROM runs WHERE {conditions} ORDER BY run_id DESC LIMIT {}", limit + 1);
    (sql, texts, times)
}

async fn write(connection: &mut AnyConnection, batches: &[Arc<Batch>]) -> Result<(), StoreError> {
    let is_sqlite = connection.backend_name() == "SQLite";
    let mut transaction = connection.begin().await?;
    let blocks: Vec<&Block> = batches.iter().flat_map(|batch| &batch.blocks).collect();
    for rows in chunks(&blocks) {
        let sql = format!(
            "INSERT INTO events (run_id, first_sequence, last_sequence, body) VALUES {}",
            places(rows.len(), 4, is_sqlite)
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for Block { run_id, first, last, body } in rows {
            query = query.bind(run_id.clone()).bind(int(*first)).bind(int(*last)).bind(&body[..]);
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
            places(rows.len(), 11, is_sqlite)
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
    for RunRow { run_id, state, finished_at, last_sequence, head, body } in batches.iter().flat_map(|batch| &batch.runs)
    {
        let sql = match body {
            None => "UPDATE runs SET state = $1, finished_at = $2, last_sequence = $3, head = $4 WHERE run_id = $5",
            Some(_) => {
                "UPDATE runs SET state = $1, finished_at = $2, last_sequence = $3, head = $4, body = $6 WHERE run_id = $5"
            }
        };
        let query = sqlx::query(sql).bind(state.name()).bind(finished_at.map(Timestamp::as_microsecond));
        let query = query.bind(int(*last_sequence)).bind(&head[..]).bind(run_id.clone());
        let query = if let Some(body) = body { query.bind(&body[..]) } else { query };
        query.execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
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

/// `($1, $2), ($3, $4)` for that many rows and columns; for SQLite `(?, ?), (?, ?)`, as it looks up each numbered
/// place by its name, among all of them.
fn places(rows: usize, columns: usize, is_sqlite: bool) -> String {
    let place = |place: usize| if is_sqlite { "?".to_owned() } else { format!("${place}") };
    let row = |row: usize| {
        let places: Vec<String> = (1..=columns).map(|column| place(row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}
