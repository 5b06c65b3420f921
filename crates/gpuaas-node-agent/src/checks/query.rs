//! One query to a program of the host.

use crate::command::CommandRunner;

/// Longest time of a query, in seconds.
pub(super) const QUERY_SECONDS: u64 = 5;

/// Standard output of a query, or the text of its error.
pub(super) async fn query(
    runner: CommandRunner<'_>,
    program: &str,
    arguments: &[&str],
    seconds: u64,
) -> Result<String, String> {
    let output = runner.query(program, arguments, seconds).await;
    output.map(|output| output.stdout).map_err(|error| error.to_string())
}
