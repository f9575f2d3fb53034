//! Texts and numbers as the table writes them down: each text after its length.

use crate::local::{read_number, write_number};

pub(super) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_number(out, bytes.len().try_into().unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

pub(super) fn write_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| write_number(out, *number));
}

/// Takes a text off the front.
pub(super) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(read_number(bytes)?).ok()?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

pub(super) fn take_text(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(bytes)?.to_vec()).ok()
}

pub(super) fn take_numbers<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = read_number(bytes)?;
    }
    Some(numbers)
}

pub(super) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}
