//! How many daemons have died while a run was going on: it may be the run that they die of.
//!
//! A run counts while it goes on, and no more once it has left: it ended, or the daemon was told to stop. So what
//! counts when a daemon starts are deaths.

use super::database::Value;
use super::rows::get;
use super::{Database, Store, StoreError};

impl Store {
    /// How many daemons have died while a run was going on.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn deaths(&self, run_id: &str) -> Result<u32, StoreError> {
        self.database.deaths(run_id).await
    }

    /// Notes that a run goes on from now.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn goes_on(&self, run_id: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO deaths (run_id, number) VALUES ($1, 1) \
                   ON CONFLICT (run_id) DO UPDATE SET number = deaths.number + 1";
        self.database.change(sql, &[run_id]).await
    }

    /// Notes that a run does not go on now. One that is over has no deaths any more.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn leaves(&self, run_id: &str, is_over: bool) -> Result<(), StoreError> {
        let sql = if is_over {
            "DELETE FROM deaths WHERE run_id = $1"
        } else {
            "UPDATE deaths SET number = number - 1 WHERE run_id = $1"
        };
        self.database.change(sql, &[run_id]).await
    }

    /// Notes that a run that goes on was not what daemons died of.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn is_innocent(&self, run_id: &str) -> Result<(), StoreError> {
        self.database.change("UPDATE deaths SET number = 1 WHERE run_id = $1", &[run_id]).await
    }
}

impl Database {
    async fn deaths(&self, run_id: &str) -> Result<u32, StoreError> {
        let sql = "SELECT number FROM deaths WHERE run_id = $1";
        let rows = self.rows(sql, vec![Value::Text(run_id.to_owned())]).await?;
        let number = rows.first().map(|row| get::<i64>(row, 0)).transpose()?.unwrap_or(0);
        Ok(u32::try_from(number).unwrap_or(0))
    }
}
