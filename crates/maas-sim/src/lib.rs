//! maas-sim
