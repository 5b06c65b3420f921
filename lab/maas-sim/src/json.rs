//! A writer of JSON in the layout of Python's `json.dumps(indent=4)`.
//!
//! A machine body has about 20 KB and a busy region sends hundreds of them a second. Building a
//! tree of values first costs several times more than the text itself, so bodies are written
//! straight into one buffer.

use std::fmt::Write as _;

pub(crate) struct JsonWriter {
    out: String,
    depth: usize,
    fresh: bool,
}

const SPACES: &str =
    "                                                                                ";

impl JsonWriter {
    /// `depth`: how many levels the text will be indented within its surroundings.
    pub(crate) fn at(depth: usize, capacity: usize) -> Self {
        Self { out: String::with_capacity(capacity), depth, fresh: true }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    fn line(&mut self) {
        self.out.push('\n');
        let mut width = self.depth * 4;
        while width > 0 {
            let step = width.min(SPACES.len());
            self.out.push_str(&SPACES[..step]);
            width -= step;
        }
    }

    fn sep(&mut self) {
        if self.fresh {
            self.fresh = false;
        } else {
            self.out.push(',');
        }
        self.line();
    }

    fn wrap(&mut self, open: char, close: char, body: impl FnOnce(&mut Self)) {
        self.out.push(open);
        self.depth += 1;
        self.fresh = true;
        body(self);
        self.depth -= 1;
        if !self.fresh {
            self.line();
        }
        self.fresh = false;
        self.out.push(close);
    }

    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Self)) {
        self.wrap('{', '}', body);
    }

    /// A list that is the whole text.
    pub(crate) fn array(&mut self, body: impl FnOnce(&mut Self)) {
        self.wrap('[', ']', body);
    }

    fn name(&mut self, key: &str) {
        self.sep();
        self.out.push('"');
        self.out.push_str(key);
        self.out.push_str("\": ");
    }

    /// An object as the value of `key`.
    pub(crate) fn obj(&mut self, key: &str, body: impl FnOnce(&mut Self)) {
        self.name(key);
        self.wrap('{', '}', body);
    }

    /// A list as the value of `key`.
    pub(crate) fn list(&mut self, key: &str, body: impl FnOnce(&mut Self)) {
        self.name(key);
        self.wrap('[', ']', body);
    }

    /// An object inside a list.
    pub(crate) fn item(&mut self, body: impl FnOnce(&mut Self)) {
        self.sep();
        self.wrap('{', '}', body);
    }

    /// A text inside a list.
    pub(crate) fn item_str(&mut self, value: &str) {
        self.sep();
        self.quoted(value);
    }

    /// A number inside a list.
    pub(crate) fn item_int(&mut self, value: i64) {
        self.sep();
        self.digits(value);
    }

    pub(crate) fn str(&mut self, key: &str, value: &str) {
        self.name(key);
        self.quoted(value);
    }

    /// A text made of parts that need no escaping.
    pub(crate) fn fmt(&mut self, key: &str, value: std::fmt::Arguments<'_>) {
        self.name(key);
        self.out.push('"');
        self.out.write_fmt(value).ok();
        self.out.push('"');
    }

    pub(crate) fn opt_str(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(text) => self.str(key, text),
            None => self.null(key),
        }
    }

    pub(crate) fn int(&mut self, key: &str, value: i64) {
        self.name(key);
        self.digits(value);
    }

    pub(crate) fn opt_int(&mut self, key: &str, value: Option<i64>) {
        match value {
            Some(number) => self.int(key, number),
            None => self.null(key),
        }
    }

    /// A float, always with a decimal point as Python prints it.
    pub(crate) fn float(&mut self, key: &str, value: f64) {
        self.name(key);
        if write!(self.out, "{value:?}").is_err() {
            self.out.push('0');
        }
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.name(key);
        self.out.push_str(if value { "true" } else { "false" });
    }

    pub(crate) fn null(&mut self, key: &str) {
        self.name(key);
        self.out.push_str("null");
    }

    pub(crate) fn strs<'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a str>) {
        self.list(key, |j| values.into_iter().for_each(|v| j.item_str(v)));
    }

    fn digits(&mut self, value: i64) {
        let mut buffer = [0_u8; 20];
        let mut at = buffer.len();
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            buffer[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            self.out.push('-');
        }
        self.out.extend(buffer[at..].iter().map(|b| char::from(*b)));
    }

    fn quoted(&mut self, value: &str) {
        self.out.push('"');
        if value.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\') {
            self.out.push_str(value);
        } else {
            for c in value.chars() {
                self.escape(c);
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        match c {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            ' '..='~' => self.out.push(c),
            _ => {
                let mut units = [0_u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    self.out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_python() {
        let mut j = JsonWriter::at(0, 64);
        j.object(|j| {
            j.str("a", "x\"é\n");
            j.list("b", |_| {});
            j.list("c", |j| {
                j.item_int(1);
                j.item(|j| j.float("f", 1_440_000.0));
            });
            j.obj("d", |_| {});
        });
        assert_eq!(
            j.finish(),
            "{\n    \"a\": \"x\\\"\\u00e9\\n\",\n    \"b\": [],\n    \"c\": [\n        1,\n        {\n            \"f\": 1440000.0\n        }\n    ],\n    \"d\": {}\n}"
        );
    }
}
