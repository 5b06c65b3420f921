//! A filter that was read, and how it is written.

use std::fmt;

use super::field::{FilterField, FilterList};
use crate::string_enum::string_enum;
use crate::time::Timestamp;

string_enum! {
/// How a field is compared with a value.
FilterOperator {
    /// The same as one of the values.
    Equal = "=",
    /// None of the values.
    NotEqual = "!=",
    /// Has one of the values within it.
    Contains = "~",
    /// Has none of the values within it.
    NotContains = "!~",
    /// Less, or earlier.
    Less = "<",
    /// Less or the same, or no later.
    LessOrEqual = "<=",
    /// More, or later.
    Greater = ">",
    /// More or the same, or no earlier.
    GreaterOrEqual = ">=",
}
}

/// What a field is compared with, of the field's own kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterValue {
    /// Of a text or a choice.
    Text(String),
    /// A moment.
    Moment(Timestamp),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterCondition {
    /// The field.
    pub field: &'static FilterField,
    /// How it is compared.
    pub operator: FilterOperator,
    /// With what, one at least.
    pub values: Vec<FilterValue>,
}

/// Conditions that are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterExpression {
    /// One condition.
    Is(FilterCondition),
    /// What is within does not hold.
    Not(Box<FilterExpression>),
    /// All hold, two at least; none of them is an `All`.
    All(Vec<FilterExpression>),
    /// One holds at least, of two at least; none of them is an `Any`.
    Any(Vec<FilterExpression>),
}

/// A filter of one list. Its written form reads back as the same filter, and [`Self::compact`] is never
/// longer than what somebody wrote, so what was read can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFilter {
    /// The list.
    pub list: FilterList,
    /// What has to hold for an item.
    pub expression: FilterExpression,
}

impl FilterExpression {
    /// Whether a condition on the field of this name is part of it.
    #[must_use]
    pub fn names(&self, field: &str) -> bool {
        match self {
            Self::Is(condition) => condition.field.name == field,
            Self::Not(inner) => inner.names(field),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.names(field)),
        }
    }
}

impl ListFilter {
    /// The written form without spaces that nobody needs.
    #[must_use]
    pub fn compact(&self) -> String {
        let (text, mut written) = (self.to_string(), String::new());
        let (mut in_quotes, mut is_escaped) = (false, false);
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            let word = written.rsplit([' ', '(', ')']).next().unwrap_or_default();
            let opens = characters.peek() == Some(&'(') && matches!(word, "not" | "or");
            if c == ' ' && !in_quotes && (written.ends_with(')') || opens) {
                continue;
            }
            in_quotes ^= c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            written.push(c);
        }
        written
    }
}

impl fmt::Display for ListFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl fmt::Display for FilterExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(condition) => condition.fmt(f),
            Self::Not(inner) if matches!(**inner, Self::All(_) | Self::Any(_)) => {
                write!(f, "not ({inner})")
            }
            Self::Not(inner) => write!(f, "not {inner}"),
            Self::All(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let space = if at == 0 { "" } else { " " };
                    match part {
                        Self::Any(_) => write!(f, "{space}({part})")?,
                        _ => write!(f, "{space}{part}")?,
                    }
                }
                Ok(())
            }
            Self::Any(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let or = if at == 0 { "" } else { " or " };
                    write!(f, "{or}{part}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for FilterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.field.name, self.operator.as_str())?;
        for (at, value) in self.values.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FilterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moment(at) => f.write_str(&moment(*at)),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Text(text) if !text.is_empty() && text.chars().all(is_bare) => f.write_str(text),
            Self::Text(text) => {
                write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
        }
    }
}

/// A moment as somebody would write it: a day, or with its time, and a fraction where it has one.
fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    let text = text.trim_end_matches('Z').trim_end_matches('0');
    let text = text.strip_suffix('.').unwrap_or(text);
    text.strip_suffix("T00:00:00").map_or_else(|| format!("{text}Z"), str::to_owned)
}

/// Whether a value may have this character outside of quotes.
pub(super) fn is_bare(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"(),\"\\=<>~!".contains(c)
}
