//! Server-sent events, read as the HTML standard has them (section 9.2.6).

/// Longest message that is read, in bytes: a server that sends more is none of ours.
const LONGEST: usize = 1 << 20;

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Its `event`; empty: an ordinary one.
    pub name: String,
    /// Its `data`, lines joined by line ends.
    pub data: String,
}

/// What was read of a stream, and is no whole message yet.
#[derive(Debug, Default)]
pub struct ServerSent {
    line: Vec<u8>,
    /// The line before ended with a carriage return: a line feed belongs to it.
    after_return: bool,
    message: Message,
    has_data: bool,
}

impl ServerSent {
    /// Reads on; answers the messages that are whole by now, however the stream was cut.
    ///
    /// # Errors
    /// What is wrong with the stream.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Message>, String> {
        let mut messages = Vec::new();
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => messages.extend(self.end_line()?),
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.message.data.len() > LONGEST {
                return Err(format!("a message has more than {LONGEST} bytes"));
            }
        }
        Ok(messages)
    }

    fn end_line(&mut self) -> Result<Option<Message>, String> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8(line).map_err(|_| "a line is not valid UTF-8".to_owned())?;
        if line.is_empty() {
            let message = std::mem::take(&mut self.message);
            return Ok(Some(message).filter(|_| std::mem::take(&mut self.has_data)));
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // Comments, the id (which is in the data) and the time to wait (which we choose).
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, data: &str) -> Message {
        Message { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn a_stream_is_read_however_it_is_cut() {
        let stream = "retry: 1000\n\n: here\n\nid: 0-1\ndata: one\n\nevent: problem\r\ndata:two\r\n\
                      data\r\n\r\ndata: \u{fc}\rdata: 4\r\r";
        let wanted = [message("", "one"), message("problem", "two\n"), message("", "\u{fc}\n4")];
        for size in [1, 2, 3, 7, stream.len()] {
            let mut parser = ServerSent::default();
            let chunks = stream.as_bytes().chunks(size);
            let read: Vec<Message> = chunks.flat_map(|chunk| parser.push(chunk).unwrap()).collect();
            assert_eq!(read, wanted, "{size}");
        }
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        assert!(ServerSent::default().push(b"data: \xff\n").is_err());
        let mut parser = ServerSent::default();
        let error = (0..2_000).find_map(|_| parser.push(&[b'x'; 1_000]).err());
        assert!(error.unwrap().contains("1048576"), "one line");
        let mut parser = ServerSent::default();
        let line = format!("data: {}\n", "x".repeat(1_000));
        assert!((0..2_000).any(|_| parser.push(line.as_bytes()).is_err()), "many lines");
    }
}
