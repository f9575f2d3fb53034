//! States as few bytes: one byte for the kind, then numbers of seven bits a byte, lowest first.

use std::num::NonZeroU64;

use crate::algorithm::{Algorithm, BucketState, CounterState, LogEntry, LogState, State, WindowState};

const BUCKET: u8 = 1;
const COUNTER: u8 = 2;
const LOG: u8 = 3;
const WINDOW: u8 = 4;

/// Appends `number`.
pub(crate) fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Takes a number off the front, or nothing when the bytes are not one.
pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

pub(super) fn write_state(bytes: &mut Vec<u8>, state: &State) {
    match state {
        State::Absent => {}
        State::FixedWindow(state) => write(bytes, WINDOW, &[state.start_us, state.count]),
        State::SlidingWindow(log) => write_log(bytes, log),
        State::SlidingWindowCounter(state) => {
            write(bytes, COUNTER, &[state.start_us, state.current, state.previous]);
        }
        State::TokenBucket(state) => write(bytes, BUCKET, &[state.level, state.mark_us, state.unit.get()]),
    }
}

fn write(bytes: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    bytes.push(kind);
    for number in numbers {
        write_number(bytes, *number);
    }
}

/// Each entry as the time since the one before it, and its amount.
fn write_log(bytes: &mut Vec<u8>, log: &LogState) {
    bytes.push(LOG);
    let mut before_us = 0;
    for entry in &log.entries {
        write_number(bytes, entry.time_us.saturating_sub(before_us));
        write_number(bytes, entry.amount());
        before_us = entry.time_us;
    }
}

/// The state in `bytes`, absent when they are not one of `algorithm`.
pub(super) fn read_state(algorithm: &Algorithm, bytes: &[u8]) -> State {
    let state = match (algorithm, bytes.split_first()) {
        (Algorithm::FixedWindow(_), Some((&WINDOW, numbers))) => read_window(numbers),
        (Algorithm::SlidingWindow(_), Some((&LOG, numbers))) => read_log(numbers),
        (Algorithm::SlidingWindowCounter(_), Some((&COUNTER, numbers))) => read_counter(numbers),
        (Algorithm::TokenBucket(_), Some((&BUCKET, numbers))) => read_bucket(numbers),
        _ => None,
    };
    state.unwrap_or_default()
}

fn read_window(bytes: &[u8]) -> Option<State> {
    let [start_us, count] = read(bytes)?;
    Some(State::FixedWindow(WindowState { start_us, count }))
}

fn read_counter(bytes: &[u8]) -> Option<State> {
    let [start_us, current, previous] = read(bytes)?;
    Some(State::SlidingWindowCounter(CounterState { start_us, current, previous }))
}

fn read_bucket(bytes: &[u8]) -> Option<State> {
    let [level, mark_us, unit] = read(bytes)?;
    Some(State::TokenBucket(BucketState { level, mark_us, unit: NonZeroU64::new(unit)? }))
}

fn read_log(mut bytes: &[u8]) -> Option<State> {
    let mut log = LogState::default();
    let (mut time_us, mut total) = (0_u64, 0_u64);
    while !bytes.is_empty() {
        time_us = time_us.checked_add(read_number(&mut bytes)?)?;
        let before = total;
        total = total.checked_add(read_number(&mut bytes)?)?;
        log.entries.push(LogEntry { time_us, before, after: total });
    }
    Some(State::SlidingWindow(log))
}

fn read<const N: usize>(mut bytes: &[u8]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = read_number(&mut bytes)?;
    }
    bytes.is_empty().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, SlidingWindow, SlidingWindowCounter, TokenBucket};

    #[test]
    fn numbers_of_every_length_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 53, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            bytes.push(9);
            let mut rest = bytes.as_slice();
            assert_eq!((read_number(&mut rest), rest), (Some(number), &[9][..]));
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bytes in
            [&[][..], &[0x80], &[0xff; 9], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(read_number(&mut &*bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn states_come_back_and_are_foreign_to_other_algorithms() {
        let algorithms: [(Algorithm, &[&str]); 4] = [
            (FixedWindow::new(9, 1_000_000).unwrap().into(), &["60000000:7"]),
            (SlidingWindow::new(9, 1_000_000).unwrap().into(), &["60000000:0:7", "60000001:7:8"]),
            (SlidingWindowCounter::new(9, 1_000_000).unwrap().into(), &["60000000:7:8"]),
            (TokenBucket::new(9, 1, 1_000_000).unwrap().into(), &["7000:60000000:1000000"]),
        ];
        for (written, texts) in &algorithms {
            let state = State::parse(written, texts);
            let mut bytes = Vec::new();
            write_state(&mut bytes, &state);
            for (read, _) in &algorithms {
                let expected = if read == written { state.clone() } else { State::Absent };
                assert_eq!(read_state(read, &bytes), expected);
            }
        }
    }
}
