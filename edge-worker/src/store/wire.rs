//! How a Durable Object hands a reply of the store, or the failure, to the isolate that asked: one byte for the kind,
//! then the reply as the store writes it, or the word of a refusal.

use lockkeeper_core::resp::{Decoder, Reply, push_array_head, push_bulk};
use lockkeeper_core::store::{Refusal, StoreFailure};

const REPLY: u8 = 0;
const NOT_SENT: u8 = 1;
const UNKNOWN: u8 = 2;
const REFUSED: u8 = 3;

/// The bytes of a result.
pub fn encode(result: &Result<Reply, StoreFailure>) -> Vec<u8> {
    match result {
        Ok(reply) => {
            let mut bytes = vec![REPLY];
            push_reply(reply, &mut bytes);
            bytes
        }
        Err(StoreFailure::NotSent) => vec![NOT_SENT],
        Err(StoreFailure::Unknown) => vec![UNKNOWN],
        Err(StoreFailure::Refused(refusal)) => [&[REFUSED], refusal.word().as_bytes()].concat(),
    }
}

/// The result in bytes that [`encode`] made. Others say nothing about what the store did.
pub fn decode(bytes: &[u8]) -> Result<Reply, StoreFailure> {
    match bytes.split_first() {
        Some((&REPLY, reply)) => {
            let mut decoder = Decoder::default();
            decoder.extend(reply);
            decoder.next_reply().ok().flatten().ok_or(StoreFailure::Unknown)
        }
        Some((&NOT_SENT, _)) => Err(StoreFailure::NotSent),
        Some((&REFUSED, word)) => {
            let refusal = Refusal::ALL.into_iter().find(|one| one.word().as_bytes() == word);
            Err(StoreFailure::Refused(refusal.unwrap_or(Refusal::Other)))
        }
        _ => Err(StoreFailure::Unknown),
    }
}

fn push_reply(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Array(elements) => {
            push_array_head(elements.len(), out);
            elements.iter().for_each(|element| push_reply(element, out));
        }
        Reply::BulkString(bytes) => push_bulk(bytes, out),
        Reply::Error(text) => push_line(b'-', text.as_bytes(), out),
        Reply::Integer(number) => push_line(b':', number.to_string().as_bytes(), out),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::SimpleString(bytes) => push_line(b'+', bytes, out),
    }
}

fn push_line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_comes_back_as_it_was() {
        let nested = Reply::Array(vec![
            Reply::BulkString(b"\r\n\xff".to_vec()),
            Reply::Integer(-7),
            Reply::Null,
            Reply::SimpleString(b"OK".to_vec()),
            Reply::Array(vec![Reply::Error("ERR no".into())]),
        ]);
        let refusals = Refusal::ALL.map(|refusal| Err(StoreFailure::Refused(refusal)));
        let others = [Ok(nested), Err(StoreFailure::NotSent), Err(StoreFailure::Unknown)];
        for result in refusals.into_iter().chain(others) {
            assert_eq!(decode(&encode(&result)), result);
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_unknown_outcome() {
        for bytes in [&[][..], &[REPLY], &[REPLY, b'*', b'9'], &[77]] {
            assert_eq!(decode(bytes), Err(StoreFailure::Unknown));
        }
        assert_eq!(decode(&[REFUSED, b'?']), Err(StoreFailure::Refused(Refusal::Other)));
    }
}
