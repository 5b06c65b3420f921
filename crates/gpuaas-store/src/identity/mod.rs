//! Who may do what: tokens, certificates, the authorities and keys that sign, and approvals by a second
//! person.

pub(crate) mod access_token;
pub(crate) mod approval;
pub(crate) mod authority;
pub(crate) mod certificate;
pub(crate) mod certificate_rows;
pub(crate) mod secret;
pub(crate) mod task_key;
pub(crate) mod task_key_rows;
pub(crate) mod token;
pub(crate) mod token_rows;
