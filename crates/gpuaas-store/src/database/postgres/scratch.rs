//! A PostgreSQL database of one's own, for a laboratory or a benchmark.

use async_recursion::async_recursion as boxed;
use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, raw_sql};

use crate::error::StoreError;

/// A database that was made to be thrown away.
#[derive(Debug, Clone)]
pub struct ScratchDatabase {
    server: String,
    name: String,
    url: String,
}

impl ScratchDatabase {
    /// Makes an empty database `name` on the server that `url` names, in place of one that is
    /// there already. `name` is `[a-z0-9_]`; the user needs the right to create databases.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `database_url_invalid` or `database_unreachable`.
    #[boxed]
    pub async fn create(url: &str, name: &str) -> Result<Self, StoreError> {
        let scratch = Self::existing(url, name)?;
        scratch.drop_database().await?;
        scratch.execute(format!("CREATE DATABASE {name}")).await?;
        Ok(scratch)
    }

    /// One that was made before.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `database_url_invalid`.
    pub fn existing(url: &str, name: &str) -> Result<Self, StoreError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let (base, query) = url.split_once('?').map_or((url, None), |(base, q)| (base, Some(q)));
        let authority = base.find("://").map_or(0, |at| at + 3);
        let Some(slash) = base[authority..].find('/').filter(|_| name.chars().all(plain)) else {
            return Err(StoreError::open(
                "database_url_invalid",
                "the PostgreSQL URL contains no database name".to_owned(),
                "use postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            ));
        };
        let query = query.map(|q| format!("?{q}")).unwrap_or_default();
        Ok(Self {
            server: url.to_owned(),
            name: name.to_owned(),
            url: format!("{}/{name}{query}", &base[..authority + slash]),
        })
    }

    /// URL of the database itself.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Drops the database, whoever is connected to it.
    ///
    /// # Errors
    /// [`StoreError::Open`] with code `database_unreachable`.
    #[boxed]
    pub async fn drop_database(&self) -> Result<(), StoreError> {
        self.execute(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).await
    }

    async fn execute(&self, statement: String) -> Result<(), StoreError> {
        let pool = self.server().await?;
        let done = raw_sql(AssertSqlSafe(statement)).execute(&pool).await;
        pool.close().await;
        done.map(drop).map_err(|error| refused(&error))
    }

    async fn server(&self) -> Result<PgPool, StoreError> {
        // The parser's words may quote the URL, and that may hold a password.
        let options = PgConnectOptions::from_str(&self.server).map_err(|_| {
            let detail = "invalid PostgreSQL URL".to_owned();
            let hint = "use postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            StoreError::open("database_url_invalid", detail, hint)
        })?;
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await;
        pool.map_err(|error| refused(&error))
    }
}

fn refused(error: &sqlx::Error) -> StoreError {
    StoreError::open(
        "database_unreachable",
        format!("PostgreSQL could not create or drop a database: {error}"),
        "check that the server is running and that the user may create databases",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_scratch_database_keeps_the_server() {
        let made =
            ScratchDatabase::existing("postgres://u:p%2F@h:5432/main?a=b", "scratch_1").unwrap();
        assert_eq!(made.url(), "postgres://u:p%2F@h:5432/scratch_1?a=b");
        assert!(ScratchDatabase::existing("postgres://h", "scratch").is_err());
        assert!(ScratchDatabase::existing("postgres://h/main", "x; DROP").is_err());
    }
}
