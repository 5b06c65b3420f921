//! Failures of the store, as `serve` ends with them.

use gpuaas_client::failure::Failure;
use gpuaas_store::StoreError;

/// The failure of a start whose store did not open.
pub(super) fn store_failure(error: StoreError) -> Failure {
    Failure::local(error.code(), "The store cannot be opened", error.to_string()).hint(error.hint())
}
