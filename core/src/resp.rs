//! The store's wire protocol, RESP2. Replies are read by the `redis-protocol` crate, behind a guard that bounds what may
//! arrive: that crate recurses into nested arrays and waits for whatever a length announces.

use redis_protocol::resp2::decode;
use redis_protocol::resp2::types::OwnedFrame;

/// A reply of the store.
pub type Reply = OwnedFrame;

/// The largest reply that is accepted, its framing included.
pub const REPLY_BYTES_MAX: usize = 1 << 20;
/// The most elements of one array in a reply.
pub const REPLY_ELEMENTS_MAX: usize = 4096;
/// How deep arrays may nest in a reply; ours nest once.
pub const REPLY_DEPTH_MAX: usize = 4;

/// Why received bytes cannot be the reply to anything we asked. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A reply exceeds [`REPLY_BYTES_MAX`].
    TooLarge,
    /// An array exceeds [`REPLY_ELEMENTS_MAX`].
    TooManyElements,
    /// Arrays nest deeper than [`REPLY_DEPTH_MAX`].
    TooDeep,
    /// The bytes are no RESP2.
    Malformed,
}

/// Appends one command, an array of bulk strings.
pub fn encode_command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    push_array_head(arguments.len(), out);
    arguments.iter().for_each(|argument| push_bulk(argument, out));
}

/// Appends the head of an array of `count` elements, which must follow.
pub fn push_array_head(count: usize, out: &mut Vec<u8>) {
    push_length(b'*', count, out);
}

/// Appends one bulk string. A request encodes a dozen of them; doing it here takes a quarter of what building frames
/// for the crate's encoder took.
pub fn push_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    push_length(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends one bulk string, the decimal digits of a number.
pub fn push_number(number: u64, out: &mut Vec<u8>) {
    push_bulk(itoa::Buffer::new().format(number).as_bytes(), out);
}

fn push_length(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Cuts a byte stream into replies, however it is split.
#[derive(Debug, Default)]
pub struct Decoder {
    received: Vec<u8>,
    consumed: usize,
}

impl Decoder {
    /// Takes bytes as they arrive.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.received.drain(..self.consumed.min(self.received.len()));
        self.consumed = 0;
        self.received.extend_from_slice(bytes);
    }

    /// The next complete reply, if there is one.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, ProtocolError> {
        let pending = self.received.get(self.consumed..).unwrap_or_default();
        let Some(extent) = extent(pending)? else {
            return if pending.len() > REPLY_BYTES_MAX { Err(ProtocolError::TooLarge) } else { Ok(None) };
        };
        let bytes = pending.get(..extent).unwrap_or_default();
        match decode::decode(bytes) {
            Ok(Some((reply, used))) if used == extent => {
                self.consumed = self.consumed.saturating_add(extent);
                Ok(Some(reply))
            }
            _ => Err(ProtocolError::Malformed),
        }
    }

    /// Forgets what was received: the connection is gone.
    pub fn clear(&mut self) {
        *self = Decoder::default();
    }
}

/// The length of the first complete reply, found without recursion and without trusting any announced length.
fn extent(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let mut position = 0_usize;
    let mut open_arrays: Vec<usize> = Vec::new();
    loop {
        let Some(head) = head(bytes.get(position..).unwrap_or_default())? else { return Ok(None) };
        position = position.saturating_add(head.bytes);
        if position > REPLY_BYTES_MAX {
            return Err(ProtocolError::TooLarge);
        }
        if head.elements > 0 {
            open_arrays.push(head.elements);
            if open_arrays.len() > REPLY_DEPTH_MAX {
                return Err(ProtocolError::TooDeep);
            }
            continue;
        }
        if close_element(&mut open_arrays) {
            return Ok((position <= bytes.len()).then_some(position));
        }
    }
}

/// Counts one finished element; true when nothing is open any more.
fn close_element(open_arrays: &mut Vec<usize>) -> bool {
    while let Some(remaining) = open_arrays.last_mut() {
        *remaining = remaining.saturating_sub(1);
        if *remaining > 0 {
            return false;
        }
        open_arrays.pop();
    }
    true
}

struct Head {
    /// Length of a scalar with all its bytes, or of an array's first line.
    bytes: usize,
    /// Elements that follow, for an array.
    elements: usize,
}

const LINE_BYTES_MAX: usize = 64 * 1024;
const LENGTH_DIGITS_MAX: usize = 16;

fn head(bytes: &[u8]) -> Result<Option<Head>, ProtocolError> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !b"+-:$*".contains(kind) {
        return Err(ProtocolError::Malformed);
    }
    let line_max = if b"$*".contains(kind) { LENGTH_DIGITS_MAX } else { LINE_BYTES_MAX };
    let scanned = rest.get(..rest.len().min(line_max.saturating_add(2))).unwrap_or_default();
    let Some(line) = scanned.windows(2).position(|pair| pair == b"\r\n") else {
        return if rest.len() > line_max.saturating_add(2) { Err(ProtocolError::TooLarge) } else { Ok(None) };
    };
    let line_bytes = line.saturating_add(3);
    if b"+-:".contains(kind) {
        return Ok(Some(Head { bytes: line_bytes, elements: 0 }));
    }
    let announced = announced(rest.get(..line).unwrap_or_default())?;
    match (kind, announced) {
        (_, None) => Ok(Some(Head { bytes: line_bytes, elements: 0 })),
        (b'*', Some(elements)) if elements > REPLY_ELEMENTS_MAX => Err(ProtocolError::TooManyElements),
        (b'*', Some(elements)) => Ok(Some(Head { bytes: line_bytes, elements })),
        (_, Some(length)) => Ok(Some(Head { bytes: line_bytes.saturating_add(length).saturating_add(2), elements: 0 })),
    }
}

/// An announced length: `None` for the null of `-1`.
fn announced(digits: &[u8]) -> Result<Option<usize>, ProtocolError> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).map(Some).ok_or(ProtocolError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(chunks: &[&[u8]]) -> Result<Vec<Reply>, ProtocolError> {
        let mut decoder = Decoder::default();
        let mut replies = Vec::new();
        for chunk in chunks {
            decoder.extend(chunk);
            while let Some(reply) = decoder.next_reply()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_are_the_same_in_every_split() {
        let bytes: &[u8] = b"*4\r\n$2\r\nab\r\n:1\r\n*0\r\n*2\r\n:-7\r\n$-1\r\n-NOSCRIPT No matching script\r\n+OK\r\n$0\r\n\r\n*-1\r\n";
        let whole = decode_all(&[bytes]).unwrap();
        assert_eq!(whole.len(), 5);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let split = decode_all(&[&bytes[..first], &bytes[first..second], &bytes[second..]]).unwrap();
                assert_eq!(split, whole, "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_reply_is_refused_at_once() {
        let nested = b"*1\r\n".repeat(10_000);
        let endless = [b"+".to_vec(), vec![b'x'; 70_000]].concat();
        let rows: [(&[u8], ProtocolError); 18] = [
            (b"*5500000000000000000\r\n", ProtocolError::TooLarge),
            (b"*5000\r\n", ProtocolError::TooManyElements),
            (b"$-5\r\n", ProtocolError::Malformed),
            (b"*-2\r\n", ProtocolError::Malformed),
            (b"$629145600\r\n", ProtocolError::TooLarge),
            (b"$99999999999999999999999\r\n", ProtocolError::TooLarge),
            (b"%1\r\n+a\r\n:1\r\n", ProtocolError::Malformed),
            (b"HTTP/1.1 200 OK\r\n", ProtocolError::Malformed),
            (b":12a\r\n", ProtocolError::Malformed),
            (b"$1x\r\n", ProtocolError::Malformed),
            (b"$2\r\nabXY\r\n", ProtocolError::Malformed),
            (b"$+2\r\nab\r\n", ProtocolError::Malformed),
            (b"$\r\n\r\n", ProtocolError::Malformed),
            (b":\r\n", ProtocolError::Malformed),
            (b":9223372036854775808\r\n", ProtocolError::Malformed),
            (b"*1\r\n\r\n", ProtocolError::Malformed),
            (&nested, ProtocolError::TooDeep),
            (&endless, ProtocolError::TooLarge),
        ];
        for (bytes, expected) in rows {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]).into_owned();
            assert_eq!(decode_all(&[bytes]), Err(expected), "{shown:?}");
        }
    }

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut out = b"before".to_vec();
        encode_command(&[b"EVALSHA", b"", b"\r\n"], &mut out);
        assert_eq!(out, b"before*3\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n$2\r\n\r\n\r\n");
    }
}
