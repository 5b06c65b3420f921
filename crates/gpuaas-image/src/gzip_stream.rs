//! A gzip file as `gzip -d` and tar read it: members one behind the other, and zeros up to a block.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// What a member begins with.
const MAGIC: [u8; 2] = [0x1F, 0x8B];

/// The content of all members.
pub(crate) struct GzipStream<R: Read> {
    state: State<BufReader<R>>,
}

enum State<B> {
    Member(Box<GzDecoder<B>>),
    Ended,
}

impl<R: Read> GzipStream<R> {
    /// Reads from the first byte on.
    pub(crate) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(1 << 18, input);
        Self { state: State::Member(Box::new(GzDecoder::new(input))) }
    }
}

impl<R: Read> Read for GzipStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let State::Member(member) = &mut self.state else { return Ok(0) };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let State::Member(member) = std::mem::replace(&mut self.state, State::Ended) else {
                return Ok(0);
            };
            let mut rest = member.into_inner();
            if has_member(&mut rest)? {
                self.state = State::Member(Box::new(GzDecoder::new(rest)));
            }
        }
    }
}

/// Whether another member follows. Zeros to the end are no member and no fault; anything else is what
/// gzip ends with a warning on, and tar with an error.
fn has_member(rest: &mut impl BufRead) -> io::Result<bool> {
    if rest.fill_buf()?.first() == Some(&MAGIC[0]) {
        return Ok(true);
    }
    loop {
        let bytes = rest.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "data follows the gzip stream"));
        }
        let length = bytes.len();
        rest.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        GzipStream::new(bytes).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn members_and_padding_are_read_as_gzip_reads_them() {
        let two = [member("a"), member("b")].concat();
        assert_eq!(read(&two).unwrap(), "ab");
        assert_eq!(read(&[member(""), member("b")].concat()).unwrap(), "b");
        assert_eq!(read(&[two.clone(), vec![0; 300_000]].concat()).unwrap(), "ab");
        assert!(read(&[two.clone(), b"left".to_vec()].concat()).is_err());
        assert!(read(&[two.clone(), vec![0; 9], member("c")].concat()).is_err());
        assert!(read(&two[..two.len() - 3]).is_err());
        assert!(read(b"").is_err() && read(b"no gzip").is_err());
    }
}
