//! The language in which lists are filtered: one parser for the command line, the API and a console.
//!
//! `state=active,offline site=s1 updated>2026-11-01 hostname~gpu-` reads: all four hold. Values with
//! commas between them are alternatives; `or`, `not` and parentheses join conditions; a value with a
//! space, a comma, a parenthesis or a sign in it stands in double quotes. What a list can be filtered
//! by is one table, [`FILTER_FIELDS`]. The database decides which rows pass, before they are cut into
//! pages.

mod expression;
mod field;
mod parse;

pub use expression::{FilterCondition, FilterExpression, FilterOperator, FilterValue, ListFilter};
pub use field::{FILTER_FIELDS, FilterField, FilterFieldKind, FilterList, FilterValues};
pub use parse::{FilterError, FilterLimits, parse_filter};
