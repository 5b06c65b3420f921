//! Failures of the store, as a command ends with them.

use gpuaas_client::failure::Failure;
use gpuaas_store::StoreError;

/// The failure of a command whose store did not work.
#[must_use]
pub fn store_failure(error: StoreError) -> Failure {
    Failure::local(error.code(), "The store cannot be opened", error.to_string()).hint(error.hint())
}
