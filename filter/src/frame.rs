//! gRPC message frames: one byte of flags, four of length, then the message (gRPC over HTTP/2, "Length-Prefixed-Message").

/// The largest message that is accepted.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
const HEADER_BYTES: usize = 5;

/// Why bytes are no frames of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The message is compressed.
    Compressed,
    /// The message is larger than [`MESSAGE_BYTES_MAX`].
    TooLarge,
}

/// Takes frames apart, however their bytes are split.
#[derive(Debug, Default)]
pub struct Unframer {
    header: Vec<u8>,
    remaining: usize,
}

impl Unframer {
    /// The message bytes among `bytes`.
    pub fn unframe(&mut self, bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut raw = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.remaining {
                0 => self.read_header(rest)?,
                remaining => {
                    let (message, after) = rest.split_at(remaining.min(rest.len()));
                    raw.extend_from_slice(message);
                    self.remaining = remaining.saturating_sub(message.len());
                    after
                }
            };
        }
        Ok(raw)
    }

    fn read_header<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], FrameError> {
        let missing = HEADER_BYTES.saturating_sub(self.header.len());
        let (header, rest) = bytes.split_at(missing.min(bytes.len()));
        self.header.extend_from_slice(header);
        if let [flags, a, b, c, d] = *self.header.as_slice() {
            self.header.clear();
            self.remaining = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            if flags != 0 {
                return Err(FrameError::Compressed);
            }
            if self.remaining > MESSAGE_BYTES_MAX {
                return Err(FrameError::TooLarge);
            }
        }
        Ok(rest)
    }
}

/// One frame around `message`.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut framed = Vec::with_capacity(message.len().saturating_add(HEADER_BYTES));
    framed.push(0);
    framed.extend_from_slice(&length);
    framed.extend_from_slice(message);
    framed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_every_split() {
        let bytes = [frame(b"PING"), frame(b""), frame(b"\r\n")].concat();
        for cut in 0..=bytes.len() {
            let mut unframer = Unframer::default();
            let mut raw = unframer.unframe(&bytes[..cut]).unwrap();
            raw.extend(unframer.unframe(&bytes[cut..]).unwrap());
            assert_eq!(raw, b"PING\r\n", "cut at {cut}");
        }
    }

    #[test]
    fn foreign_frames_are_refused() {
        assert_eq!(Unframer::default().unframe(&[1, 0, 0, 0, 1]), Err(FrameError::Compressed));
        assert_eq!(Unframer::default().unframe(&[0, 255, 0, 0, 1]), Err(FrameError::TooLarge));
    }
}
