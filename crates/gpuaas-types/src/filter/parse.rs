//! Reads a filter: by descent, each character once, with a place for every complaint.

use std::fmt;

use super::expression::{
    FilterCondition, FilterExpression, FilterOperator, FilterValue, ListFilter, is_bare,
};
use super::field::{FilterField, FilterFieldKind, FilterList};
use crate::coded_error::CodedError;
use crate::time::Timestamp;

/// What a filter may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterLimits {
    /// Characters of its text.
    pub characters: usize,
    /// Values of all its conditions.
    pub values: usize,
    /// `not` and parentheses within each other.
    pub depth: usize,
}

impl FilterLimits {
    /// What every list allows.
    pub const ALLOWED: Self = Self { characters: 2000, values: 100, depth: 10 };
}

/// Why a text is no filter of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// Number of the character at which it stops being one; the first is 1.
    pub position: usize,
    /// What is wrong there, a clause.
    pub fault: String,
    /// What may stand there, a sentence for whoever wrote the filter.
    pub hint: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid filter at character {}: {}", self.position, self.fault)
    }
}

impl std::error::Error for FilterError {}

impl CodedError for FilterError {
    fn code(&self) -> &str {
        "invalid_filter"
    }

    fn hint(&self) -> &str {
        &self.hint
    }
}

/// Reads a filter of this list.
///
/// # Errors
/// A [`FilterError`] with the place and what may stand there.
pub fn parse_filter(list: FilterList, text: &str) -> Result<ListFilter, FilterError> {
    let characters: Vec<char> = text.chars().collect();
    let mut parser = Parser { list, text: &characters, at: 0, depth: 0, values: 0 };
    let limits = FilterLimits::ALLOWED;
    if characters.len() > limits.characters {
        let hint = format!("shorten the filter to at most {} characters", limits.characters);
        return Err(parser.error_at(limits.characters, "the filter is too long", hint));
    }
    if let Some(at) = characters.iter().position(|c| c.is_control()) {
        let hint = "write the filter on one line, without tabs or other control characters";
        return Err(parser.error_at(at, "a control character", hint));
    }
    let expression = parser.any()?;
    match parser.peek() {
        None => Ok(ListFilter { list, expression }),
        Some(')') => Err(parser.error("unmatched closing parenthesis", "remove it")),
        Some(c) => Err(parser.error(&format!("unexpected {c:?}"), SHAPE)),
    }
}

const SHAPE: &str = "write conditions as FIELD=VALUE with a space between them, such as \
                     `site=lab hostname~gpu-`; put a value with spaces or special characters in \
                     double quotes";

struct Parser<'a> {
    list: FilterList,
    text: &'a [char],
    at: usize,
    depth: usize,
    values: usize,
}

impl Parser<'_> {
    fn error(&self, fault: &str, hint: impl Into<String>) -> FilterError {
        self.error_at(self.at, fault, hint)
    }

    fn error_at(&self, at: usize, fault: &str, hint: impl Into<String>) -> FilterError {
        FilterError { position: at + 1, fault: fault.to_owned(), hint: hint.into() }
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Takes `word` where it stands next as a word of its own, and is no field that is compared.
    fn take_word(&mut self, word: &str) -> bool {
        self.peek();
        let end = self.at + word.chars().count();
        let Some(next) = self.text.get(self.at..end) else { return false };
        let is_word = next.iter().copied().eq(word.chars());
        let ends = self.text.get(end).is_none_or(|c| c.is_whitespace() || *c == '(');
        if is_word && ends {
            self.at = end;
        }
        is_word && ends
    }

    fn any(&mut self) -> Result<FilterExpression, FilterError> {
        let mut parts = Vec::new();
        loop {
            match self.all()? {
                FilterExpression::Any(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            if !self.take_word("or") {
                return Ok(joined(parts, FilterExpression::Any));
            }
        }
    }

    fn all(&mut self) -> Result<FilterExpression, FilterError> {
        let mut parts = Vec::new();
        loop {
            match self.one()? {
                FilterExpression::All(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            let before_or = self.at;
            if self.take_word("or") {
                self.at = before_or;
                return Ok(joined(parts, FilterExpression::All));
            }
            if !self.take_word("and") && matches!(self.peek(), None | Some(')')) {
                return Ok(joined(parts, FilterExpression::All));
            }
        }
    }

    fn one(&mut self) -> Result<FilterExpression, FilterError> {
        let begin = self.at;
        let is_not = self.take_word("not");
        if !is_not && self.peek() != Some('(') {
            return self.condition().map(FilterExpression::Is);
        }
        self.depth += 1;
        let depth = FilterLimits::ALLOWED.depth;
        if self.depth > depth {
            let hint = format!("nest at most {depth} levels");
            return Err(self.error_at(begin, "too many nested parentheses", hint));
        }
        let inner = if is_not {
            FilterExpression::Not(Box::new(self.one()?))
        } else {
            self.at += 1;
            let inner = self.any()?;
            if self.peek() != Some(')') {
                return Err(self.error("unclosed parenthesis", "add `)` here"));
            }
            self.at += 1;
            inner
        };
        self.depth -= 1;
        Ok(inner)
    }

    fn condition(&mut self) -> Result<FilterCondition, FilterError> {
        self.peek();
        let begin = self.at;
        while self.text.get(self.at).is_some_and(|c| is_bare(*c)) {
            self.at += 1;
        }
        let name: String = self.text.get(begin..self.at).unwrap_or_default().iter().collect();
        if name.is_empty() {
            let fault = match self.text.get(begin) {
                None => "missing condition".to_owned(),
                Some(c) => format!("expected a field name, found {c:?}"),
            };
            return Err(self.error(&fault, format!("{SHAPE}; {}", self.known_fields())));
        }
        let Some(field) = self.list.field(&name) else {
            let fault = format!("the list of {} has no field {name:?}", self.list);
            return Err(self.error_at(begin, &fault, self.known_fields()));
        };
        let operator = self.operator(field)?;
        let mut values = Vec::new();
        loop {
            values.push(self.value(field, operator)?);
            if self.text.get(self.at) != Some(&',') {
                break;
            }
            if !takes_many(operator) {
                let hint = format!("write one value after {}", operator.as_str());
                return Err(self.error("unexpected second value", hint));
            }
            self.at += 1;
        }
        Ok(FilterCondition { field, operator, values })
    }

    fn operator(&mut self, field: &FilterField) -> Result<FilterOperator, FilterError> {
        self.peek();
        let begin = self.at;
        while self.text.get(self.at).is_some_and(|c| "=<>~!".contains(*c)) {
            self.at += 1;
        }
        let text: String = self.text.get(begin..self.at).unwrap_or_default().iter().collect();
        let known: Vec<&str> = operators(field.kind).iter().map(|known| known.as_str()).collect();
        let hint = format!("{} accepts these operators: {}", field.name, known.join(" "));
        if text.is_empty() {
            let fault = format!("missing comparison operator after {}", field.name);
            return Err(self.error_at(begin, &fault, hint));
        }
        let operator = text.parse().ok().filter(|known| operators(field.kind).contains(known));
        operator.ok_or_else(|| {
            self.error_at(begin, &format!("{} does not support {text}", field.name), hint)
        })
    }

    fn value(
        &mut self,
        field: &FilterField,
        operator: FilterOperator,
    ) -> Result<FilterValue, FilterError> {
        let quoted = self.peek() == Some('"');
        let begin = self.at;
        let text = if quoted { self.quoted()? } else { self.bare(field)? };
        self.values += 1;
        let most = FilterLimits::ALLOWED.values;
        if self.values > most {
            let hint = format!("use at most {most} values");
            return Err(self.error_at(begin, "too many values", hint));
        }
        let contains = matches!(operator, FilterOperator::Contains | FilterOperator::NotContains);
        if text.is_empty() && contains {
            let hint = format!("write a part of {}", field.name);
            return Err(self.error_at(begin, "every text contains an empty value", hint));
        }
        read_value(field, &text).map_err(|(fault, hint)| self.error_at(begin, &fault, hint))
    }

    fn bare(&mut self, field: &FilterField) -> Result<String, FilterError> {
        let begin = self.at;
        while self.text.get(self.at).is_some_and(|c| is_bare(*c)) {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(c) if !c.is_whitespace() && !",)".contains(*c) => {
                let fault = format!("unexpected {c:?} in a value");
                Err(self.error(&fault, SHAPE))
            }
            _ if begin == self.at => {
                let hint = format!("write a value for {}; write \"\" for an empty one", field.name);
                Err(self.error("missing value", hint))
            }
            _ => Ok(self.text.get(begin..self.at).unwrap_or_default().iter().collect()),
        }
    }

    fn quoted(&mut self) -> Result<String, FilterError> {
        let begin = self.at;
        let mut text = String::new();
        loop {
            self.at += 1;
            match self.text.get(self.at) {
                None => {
                    let hint = "add a double quote after the value";
                    return Err(self.error_at(begin, "unclosed double quote", hint));
                }
                Some('"') => break,
                Some('\\') => {
                    self.at += 1;
                    match self.text.get(self.at) {
                        Some(c @ ('"' | '\\')) => text.push(*c),
                        _ => {
                            let hint = "write \\\\ for a backslash and \\\" for a double quote";
                            return Err(self.error("invalid escape sequence", hint));
                        }
                    }
                }
                Some(c) => text.push(*c),
            }
        }
        self.at += 1;
        match self.text.get(self.at) {
            Some(c) if !c.is_whitespace() && !",)".contains(*c) => {
                Err(self.error("unexpected text after a value", SHAPE))
            }
            _ => Ok(text),
        }
    }

    fn known_fields(&self) -> String {
        let names: Vec<&str> = self.list.fields().map(|field| field.name).collect();
        format!("filter {} by: {}", self.list, names.join(", "))
    }
}

/// One part as it is, several as `join` has them.
fn joined(
    mut parts: Vec<FilterExpression>,
    join: fn(Vec<FilterExpression>) -> FilterExpression,
) -> FilterExpression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            join(parts)
        }
    }
}

const fn takes_many(operator: FilterOperator) -> bool {
    matches!(
        operator,
        FilterOperator::Equal
            | FilterOperator::NotEqual
            | FilterOperator::Contains
            | FilterOperator::NotContains
    )
}

/// What fields of this kind can be compared by.
const fn operators(kind: FilterFieldKind) -> &'static [FilterOperator] {
    use FilterOperator as Op;
    match kind {
        FilterFieldKind::Text => &[Op::Equal, Op::NotEqual, Op::Contains, Op::NotContains],
        FilterFieldKind::Choice(_) => &[Op::Equal, Op::NotEqual],
        FilterFieldKind::Moment => &[Op::Less, Op::LessOrEqual, Op::Greater, Op::GreaterOrEqual],
        FilterFieldKind::Number => {
            &[Op::Equal, Op::NotEqual, Op::Less, Op::LessOrEqual, Op::Greater, Op::GreaterOrEqual]
        }
        FilterFieldKind::Flag => &[Op::Equal],
    }
}

/// The text as a value of the field; else what is wrong with it, and a hint.
fn read_value(field: &FilterField, text: &str) -> Result<FilterValue, (String, String)> {
    let short: String = text.chars().take(60).collect();
    let refuse = |what: &str, hint: String| (format!("{short:?} is not a valid {what}"), hint);
    match field.kind {
        FilterFieldKind::Text => Ok(FilterValue::Text(text.to_owned())),
        FilterFieldKind::Choice(values) if values.all().contains(&text) => {
            Ok(FilterValue::Text(text.to_owned()))
        }
        FilterFieldKind::Choice(values) => {
            let known = format!("{} is one of: {}", field.name, values.all().join(", "));
            let elsewhere = field.list.fields().find(|other| match other.kind {
                FilterFieldKind::Choice(values) => values.all().contains(&text),
                _ => false,
            });
            let hint = match elsewhere {
                Some(other) => format!("write {}={text}; {known}", other.name),
                None => known,
            };
            Err(refuse(&format!("value of {}", field.name), hint))
        }
        FilterFieldKind::Moment => {
            let midnight = || Timestamp::from_rfc3339(&format!("{text}T00:00:00Z"));
            let at = Timestamp::from_rfc3339(text).or_else(midnight).ok_or_else(|| {
                let hint = "write it as 2026-11-23T14:05:00Z, or as 2026-11-23";
                refuse("time", hint.to_owned())
            })?;
            Ok(FilterValue::Moment(at))
        }
        FilterFieldKind::Number => text
            .parse()
            .map(FilterValue::Number)
            .map_err(|_| refuse("whole number", "write only digits, such as 21".to_owned())),
        FilterFieldKind::Flag => text
            .parse()
            .map(FilterValue::Flag)
            .map_err(|_| refuse("flag", "write true or false".to_owned())),
    }
}

#[cfg(test)]
mod tests;
