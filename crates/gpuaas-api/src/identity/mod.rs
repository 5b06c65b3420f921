//! Who a request comes from and what it may do: tokens, sign-ins, certificates, keys, and requests
//! that need a second person.

pub(crate) mod access;
pub(crate) mod approval_waits;
pub(crate) mod approvals;
pub(crate) mod auth;
pub(crate) mod authorities;
pub(crate) mod caller;
pub(crate) mod certificates;
pub(crate) mod issuing;
pub(crate) mod known_task_keys;
pub(crate) mod refused_credentials;
pub(crate) mod second_person;
pub(crate) mod sign_in;
pub(crate) mod task_keys;
pub(crate) mod tokens;
