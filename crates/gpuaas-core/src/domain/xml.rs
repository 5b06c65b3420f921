//! A document as a tree of elements, written by `quick-xml`, which escapes what it writes.

use std::fmt::Display;

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// An element with its attributes, and with elements or text in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Element>,
    text: Option<String>,
}

/// An element of this name, empty.
pub(super) fn element(name: &'static str) -> Element {
    Element { name, attributes: Vec::new(), children: Vec::new(), text: None }
}

impl Element {
    /// Adds an attribute.
    pub(super) fn with(mut self, name: &'static str, value: impl Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Adds an element.
    pub(super) fn child(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    /// Adds elements.
    pub(super) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    /// Sets the text; an element with text has no elements.
    pub(super) fn text(mut self, text: impl Display) -> Self {
        self.text = Some(text.to_string());
        self
    }

    /// The document that this is the root of, indented by two spaces, with a newline at its end.
    pub(super) fn xml(&self) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::new_with_indent(&mut bytes, b' ', 2);
        // Writing to memory cannot fail.
        self.write(&mut writer).ok();
        bytes.push(b'\n');
        String::from_utf8(bytes).unwrap_or_default()
    }

    fn write(&self, writer: &mut Writer<&mut Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, value.as_str()));
        }
        if self.children.is_empty() && self.text.is_none() {
            return writer.write_event(Event::Empty(start));
        }
        writer.write_event(Event::Start(start))?;
        if let Some(text) = &self.text {
            writer.write_event(Event::Text(BytesText::new(text)))?;
        }
        for child in &self.children {
            child.write(writer)?;
        }
        writer.write_event(Event::End(BytesEnd::new(self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_escaped_and_indented() {
        let document = element("a")
            .child(element("b").with("c", "1 < \"2\" & '3'"))
            .child(element("d").text("x > y & z"));
        let lines = [
            "<a>",
            "  <b c=\"1 &lt; &quot;2&quot; &amp; &apos;3&apos;\"/>",
            "  <d>x &gt; y &amp; z</d>",
            "</a>",
            "",
        ];
        assert_eq!(document.xml(), lines.join("\n"));
    }
}
