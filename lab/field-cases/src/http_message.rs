//! HTTP/1.1 as far as a proxy of one message a connection needs it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Longest head and longest body, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// A request or an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// Its first line, without the end.
    pub(crate) first: String,
    /// Headers in order, without those of a connection.
    pub(crate) headers: Vec<(String, String)>,
    /// The whole body, no longer in chunks.
    pub(crate) body: Vec<u8>,
}

/// Headers that are about a connection, not about the message.
const OF_CONNECTION: [&str; 5] =
    ["connection", "content-length", "expect", "keep-alive", "transfer-encoding"];

impl Message {
    /// Reads one; `None` where the connection ended before.
    ///
    /// # Errors
    /// The connection broke, or the bytes are no HTTP.
    pub(crate) fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let Some(first) = line(&mut reader)? else { return Ok(None) };
        let mut headers = Vec::new();
        while let Some(text) = line(&mut reader)?.filter(|text| !text.is_empty()) {
            let (name, value) = text.split_once(':').ok_or_else(|| fault("no header"))?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let value = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.to_ascii_lowercase())
        };
        if value("expect").is_some() {
            { stream }.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let is_answer = first.starts_with("HTTP/");
        let has_none =
            is_answer && [" 204", " 304", " 100"].iter().any(|code| first.contains(code));
        let mut body = Vec::new();
        if value("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            read_chunks(&mut reader, &mut body)?;
        } else if let Some(length) = value("content-length") {
            let length: u64 = length.parse().map_err(|_| fault("no length"))?;
            reader.take(length.min(MOST_BYTES)).read_to_end(&mut body)?;
        } else if is_answer && !has_none {
            reader.take(MOST_BYTES).read_to_end(&mut body)?;
        }
        headers.retain(|(name, _)| !OF_CONNECTION.contains(&name.to_ascii_lowercase().as_str()));
        Ok(Some(Self { first, headers, body }))
    }

    /// Writes it, as the only one of its connection.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn write(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut head = format!("{}\r\n", self.first);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\nConnection: close\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        stream.flush()
    }

    /// The n-th word of the first line.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.first.split(' ').nth(index).unwrap_or_default()
    }
}

fn fault(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let count = reader.take(1 << 16).read_until(b'\n', &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok((count > 0).then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let size =
            line(reader)?.ok_or_else(|| fault("incomplete chunked body: a chunk is missing"))?;
        let size = size.split(';').next().unwrap_or_default().trim().to_owned();
        let size = u64::from_str_radix(&size, 16)
            .map_err(|_| fault("invalid chunk size: expected a hexadecimal number"))?;
        if size == 0 {
            while line(reader)?.is_some_and(|text| !text.is_empty()) {}
            return Ok(());
        }
        reader.take(size.min(MOST_BYTES)).read_to_end(body)?;
        line(reader)?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn sent(bytes: &'static [u8]) -> Message {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sender = std::thread::spawn(move || {
            TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
        });
        let message = Message::read(&listener.accept().unwrap().0).unwrap().unwrap();
        sender.join().unwrap();
        message
    }

    #[test]
    fn bodies_of_each_kind_are_read_whole() {
        let request = sent(b"POST /x?op=a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcd");
        assert_eq!(
            (request.word(0), request.word(1), request.body.as_slice()),
            ("POST", "/x?op=a", &b"abc"[..])
        );
        assert_eq!(request.headers, [("Host".to_owned(), "h".to_owned())]);
        let chunks = sent(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        );
        assert_eq!(chunks.body, b"abc");
        let ended = sent(b"HTTP/1.1 200 OK\r\nServer: s\r\n\r\nrest");
        assert_eq!((ended.word(1), ended.body.as_slice()), ("200", &b"rest"[..]));
    }
}
