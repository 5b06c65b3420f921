//! Is what an operator wrote well-formed? Pure functions; each answers the normal form.

mod address;
mod fabric_address;
mod onboard_request;
mod profile_spec;
mod site_spec;
mod text;

pub(crate) use self::address::mac;
pub(crate) use self::fabric_address::{interface, roce};
pub(crate) use self::onboard_request::{onboard, reports};
pub(crate) use self::profile_spec::{image_name, profile};
pub(crate) use self::site_spec::site;
pub(crate) use self::text::{REASON_CHARS, name, plain_text, reason, words};
