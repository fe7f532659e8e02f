//! The frames of a saved state. Each frame is authenticated together with all frames before it.
//!
//! The state begins with a magic number, the version of the format, and a fingerprint of the secret. A frame consists
//! of its kind (one byte), the length of its payload (four bytes, little-endian), the payload, and a 16-byte SipHash,
//! whose key is derived from the limiter's secret. Each hash also covers the hash of the previous frame. The state ends
//! with an empty frame, so a state that was cut off between frames is detected.

use std::io::{self, Read, Write};

use super::error::StateError;
use crate::policy::Secret;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Entries = 1,
    Rows = 2,
    End = 3,
}

/// The secret for hashing, and the hash of the previous frame.
struct Chain {
    secret: Secret,
    hash: [u8; HASH_BYTES],
}

impl Chain {
    fn start(secret: Secret, header: &[u8]) -> Chain {
        let secret = secret.derive("frames of a saved state");
        Chain { hash: secret.hash(header).to_bits().to_le_bytes(), secret }
    }

    /// Extends the chain by a frame. The first [`HASH_BYTES`] bytes of `frame` are replaced with the hash of the
    /// previous frame.
    fn extend(&mut self, frame: &mut [u8]) {
        frame[..HASH_BYTES].copy_from_slice(&self.hash);
        self.hash = self.secret.hash(frame).to_bits().to_le_bytes();
    }
}

pub(super) struct FrameWriter<W> {
    to: W,
    chain: Chain,
    /// Space for the hash of the previous frame, followed by the frame.
    frame: Vec<u8>,
    written: u64,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn start(mut to: W, secret: Secret) -> Result<FrameWriter<W>, StateError> {
        let header = header(&secret);
        to.write_all(&header).map_err(StateError::write)?;
        let chain = Chain::start(secret, &header);
        Ok(FrameWriter { to, chain, frame: Vec::with_capacity(MAX_FRAME), written: header.len() as u64 })
    }

    pub(super) fn write(&mut self, kind: FrameKind, bytes: &[u8]) -> Result<(), StateError> {
        bytes.chunks(MAX_PAYLOAD).try_for_each(|payload| self.write_frame(kind, payload)).map_err(StateError::write)
    }

    /// Writes the last frame, and returns the number of bytes written in total.
    pub(super) fn finish(mut self) -> Result<u64, StateError> {
        self.write_frame(FrameKind::End, &[]).and_then(|()| self.to.flush()).map_err(StateError::write)?;
        Ok(self.written)
    }

    fn write_frame(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; HASH_BYTES]);
        self.frame.push(kind as u8);
        self.frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(payload);
        self.chain.extend(&mut self.frame);
        self.frame.extend_from_slice(&self.chain.hash);
        self.written += (self.frame.len() - HASH_BYTES) as u64;
        self.to.write_all(&self.frame[HASH_BYTES..])
    }
}

pub(super) struct FrameReader<R> {
    from: R,
    chain: Chain,
    /// Space for the hash of the previous frame, followed by the frame without its own hash.
    frame: Vec<u8>,
    read: u64,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn start(mut from: R, secret: Secret) -> Result<FrameReader<R>, StateError> {
        let mut found = [0; HEADER_BYTES];
        let read = read_up_to(&mut from, &mut found).map_err(StateError::read)?;
        let expected = header(&secret);
        if found[..MAGIC.len()] != MAGIC {
            return Err(StateError::not_a_state(read));
        }
        if read < HEADER_BYTES {
            return Err(StateError::ends_early(read as u64));
        }
        let (version, fingerprint) = (MAGIC.len()..MAGIC.len() + 4, MAGIC.len() + 4..);
        if found[version.clone()] != expected[version.clone()] {
            let found = found[version].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            return Err(StateError::version(VERSION, found));
        }
        if found[fingerprint.clone()] != expected[fingerprint] {
            return Err(StateError::other_secret());
        }
        let chain = Chain::start(secret, &found);
        Ok(FrameReader { from, chain, frame: Vec::new(), read: read as u64 })
    }

    /// Reads and checks the next frame. Returns `None` after the last frame.
    pub(super) fn next_frame(&mut self) -> Result<Option<FrameKind>, StateError> {
        self.frame.clear();
        self.frame.resize(PAYLOAD_START, 0);
        self.fill(HASH_BYTES)?;
        let kind = self.frame[HASH_BYTES];
        let length = self.frame[HASH_BYTES + 1..].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
        let start = self.read - (PAYLOAD_START - HASH_BYTES) as u64;
        if length > MAX_PAYLOAD {
            return Err(StateError::damaged(format!("the part at byte {start} claims to be {length} bytes long")));
        }
        self.frame.resize(PAYLOAD_START + length, 0);
        self.fill(PAYLOAD_START)?;
        self.chain.extend(&mut self.frame);
        let mut hash = [0; HASH_BYTES];
        self.read += read_up_to(&mut self.from, &mut hash).map_err(StateError::read)? as u64;
        if hash != self.chain.hash {
            let what = format!("the part at byte {start} is incomplete, or has been changed since it was saved");
            return Err(StateError::damaged(what));
        }
        match [FrameKind::Entries, FrameKind::Rows].into_iter().find(|known| *known as u8 == kind) {
            Some(kind) => Ok(Some(kind)),
            None if kind == FrameKind::End as u8 => self.check_end(),
            None => Err(StateError::damaged(format!("the part at byte {start} has unknown kind {kind}"))),
        }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.frame[PAYLOAD_START..]
    }

    fn fill(&mut self, start: usize) -> Result<(), StateError> {
        let missing = &mut self.frame[start..];
        let read = read_up_to(&mut self.from, missing).map_err(StateError::read)?;
        self.read += read as u64;
        if read < missing.len() { Err(StateError::ends_early(self.read)) } else { Ok(()) }
    }

    fn check_end(&mut self) -> Result<Option<FrameKind>, StateError> {
        match read_up_to(&mut self.from, &mut [0]).map_err(StateError::read)? {
            0 => Ok(None),
            _ => Err(StateError::damaged(format!("expected the state to end at byte {}, found more bytes", self.read))),
        }
    }
}

/// Fills the buffer unless the input ends earlier. Returns the number of bytes that were read.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match from.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn header(secret: &Secret) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(&MAGIC);
    header[MAGIC.len()..][..4].copy_from_slice(&VERSION.to_le_bytes());
    let fingerprint = secret.derive("fingerprint of a saved state").hash(&MAGIC).seed();
    header[MAGIC.len() + 4..].copy_from_slice(&fingerprint.to_le_bytes());
    header
}

const MAGIC: [u8; 8] = *b"tollgate";
/// The version of the format. Increment it if frames or entries change.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = MAGIC.len() + 4 + 8;
const HASH_BYTES: usize = 16;
const PAYLOAD_START: usize = HASH_BYTES + 1 + 4;
const MAX_PAYLOAD: usize = 256 * 1024;
const MAX_FRAME: usize = PAYLOAD_START + MAX_PAYLOAD + HASH_BYTES;
