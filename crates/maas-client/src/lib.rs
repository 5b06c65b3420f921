//! maas-client
