//! The store's replies: any bytes in any pieces give the same replies, or the same refusal.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use lockkeeper_core::resp::{Decoder, ProtocolError, Reply};
use lockkeeper_core::store::StoreFailure;

use crate::budget_ms;

const PIECES: [&[u8]; 26] = [
    b"*",
    b"$",
    b":",
    b"+",
    b"-",
    b"\r\n",
    b"\r",
    b"\n",
    b"0",
    b"1",
    b"2",
    b"-1",
    b"5",
    b"*2\r\n",
    b"*5\r\n$1\r\nt\r\n",
    b":1\r\n",
    b":0\r\n",
    b"$3\r\nabc\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"+OK\r\n",
    b"-NOSCRIPT x\r\n",
    b"9999999999999999",
    b"\xff",
    b"-ERR Error running script: -READONLY\r\n",
    b"*0\r\n",
];

#[test]
fn pieces_do_not_matter() {
    arbtest(|input| {
        let count = input.int_in_range(0..=60)?;
        let bytes = (0..count).map(|_| input.choose(&PIECES).copied()).collect::<Result<Vec<_>>>()?.concat();
        let whole = decode(&mut [bytes.as_slice()].into_iter());
        let cuts = cuts(input, &bytes)?;
        assert_eq!(decode(&mut cuts.into_iter()), whole, "of {:?}", String::from_utf8_lossy(&bytes));
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

#[test]
fn an_error_of_any_text_is_classified() {
    arbtest(|input| {
        let bytes = input.bytes(input.len())?;
        assert!(!StoreFailure::of_error(&String::from_utf8_lossy(bytes)).word().is_empty());
        Ok(())
    })
    .budget_ms(budget_ms())
    .run();
}

fn cuts<'b>(input: &mut Unstructured<'_>, bytes: &'b [u8]) -> Result<Vec<&'b [u8]>> {
    let (mut rest, mut cuts) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(input.int_in_range(1..=rest.len())?);
        cuts.push(piece);
        rest = after;
    }
    Ok(cuts)
}

/// The replies until the end or the first refusal.
fn decode(chunks: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Reply>, Option<ProtocolError>) {
    let (mut decoder, mut replies) = (Decoder::default(), Vec::new());
    for chunk in chunks {
        decoder.extend(chunk);
        loop {
            match decoder.next_reply() {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}
