//! Reads lines from a file or from standard input, which may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// The maximum length of a line in bytes. The rest of a longer line is skipped.
pub const MAX_LINE: usize = 64 << 10;

/// Opens a log. `-` means standard input. Gzip and Zstandard are recognized by their first bytes.
pub fn open(path: &Path, wrap: impl FnOnce(Box<dyn Read>) -> Box<dyn Read>) -> io::Result<Box<dyn BufRead>> {
    let raw: Box<dyn Read> = if path.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
    decompress(BufReader::with_capacity(256 << 10, wrap(raw)))
}

fn decompress(mut raw: BufReader<Box<dyn Read>>) -> io::Result<Box<dyn BufRead>> {
    // A single read from a pipe may return fewer than four bytes.
    let mut magic = Vec::new();
    raw.by_ref().take(4).read_to_end(&mut magic)?;
    let raw = io::Cursor::new(magic.clone()).chain(raw);
    Ok(match magic[..] {
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(256 << 10, MultiGzDecoder::new(raw))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(BufReader::with_capacity(256 << 10, zstd::Decoder::with_buffer(raw)?)),
        _ => Box::new(raw),
    })
}

/// Reads at most [`MAX_LINE`] bytes of a line, without its line ending. Returns `false` at the end of the input.
pub fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut has_read = false;
    loop {
        let chunk = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            chunk => chunk?,
        };
        if chunk.is_empty() {
            return Ok(has_read);
        }
        has_read = true;
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        line.extend_from_slice(&part[..part.len().min(MAX_LINE - line.len())]);
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(bytes: Vec<u8>) -> Vec<String> {
        let mut input = decompress(BufReader::new(Box::new(io::Cursor::new(bytes)))).unwrap();
        let (mut lines, mut line) = (Vec::new(), Vec::new());
        while read_line(&mut input, &mut line).unwrap() {
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        lines
    }

    #[test]
    fn compressed_logs_are_recognized_by_their_content() {
        let text = b"one\ntwo\r\n\nthree".to_vec();
        let gzip = |text: &[u8]| {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(text).unwrap();
            writer.finish().unwrap()
        };
        let expected = ["one", "two", "", "three"];
        assert_eq!(lines(text.clone()), expected);
        assert_eq!(lines(gzip(&text)), expected);
        assert_eq!(lines([gzip(b"one\ntwo\r\n"), gzip(b"\nthree")].concat()), expected);
        assert_eq!(lines(zstd::encode_all(&text[..], 1).unwrap()), expected);
        assert!(lines(Vec::new()).is_empty());
    }

    /// Regression: a read from a pipe may return fewer than the four bytes that identify a format.
    #[test]
    fn a_compressed_log_is_recognized_even_if_its_first_bytes_arrive_slowly() {
        let bytes = zstd::encode_all(&b"one\ntwo"[..], 1).unwrap();
        let slow = io::Cursor::new(bytes[..1].to_vec()).chain(io::Cursor::new(bytes[1..].to_vec()));
        let mut line = Vec::new();
        assert!(read_line(&mut decompress(BufReader::new(Box::new(slow))).unwrap(), &mut line).unwrap());
        assert_eq!(line, b"one");
    }

    #[test]
    fn an_overlong_line_is_truncated() {
        let found = lines([vec![b'x'; 3 * MAX_LINE], b"\nnext\n".to_vec()].concat());
        assert_eq!((found[0].len(), found[1].as_str()), (MAX_LINE, "next"));
    }
}
