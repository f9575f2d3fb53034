//! Durations and rates as policy files write them: the unit is always in the value.

use std::time::Duration;

use super::error::PolicyErrors;
use super::reader::Place;
use super::suggest;

/// The shortest window, refill period or deadline that loads.
pub const DURATION_MIN: Duration = Duration::from_millis(1);
/// The longest window or refill period that loads: 366 days.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A refill rate: `tokens` every `period_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens added per period, at least one.
    pub tokens: u64,
    /// The period in microseconds.
    pub period_us: u64,
}

/// Reads a duration such as `"500ms"`, `"1m"` or `"1h 30m"`, and returns it in microseconds.
pub fn duration_us(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<u64> {
    let expected = "a duration with its unit, from \"1ms\" to \"366d\", such as \"500ms\", \"10s\", \"1m\" or \"24h\"";
    let us = place.node.as_text().and_then(parse_duration_us);
    if us.is_none() {
        let meant = || suggest::time::duration(place.node, is_duration);
        place.reject_for(errors, expected, meant);
    }
    us
}

/// Reads a duration between `least` and `most`, both as policy files write them, and returns it in microseconds. A least
/// of `"0ms"` allows none at all.
pub fn duration_us_between(place: &Place<'_>, least: &str, most: &str, errors: &mut PolicyErrors) -> Option<u64> {
    let is_none = |text: &str| text.strip_prefix('0').is_some_and(|unit| UNITS.contains(&unit));
    let bound = |text: &str| parse_duration_us(text).unwrap_or(0);
    let us = match place.node.as_text() {
        Some(text) if is_none(text) => 0,
        _ => duration_us(place, errors)?,
    };
    if !(bound(least)..=bound(most)).contains(&us) {
        place.reject(errors, format!("a duration from {least:?} to {most:?}"));
        return None;
    }
    Some(us)
}

/// Reads a rate such as `"5/s"`, `"100/1m"` or `"1/12s"`.
pub fn rate(place: &Place<'_>, errors: &mut PolicyErrors) -> Option<Rate> {
    let expected = "a rate of whole tokens per duration, such as \"5/s\", \"100/m\" or \"1/12s\"";
    let parsed = place.node.as_text().and_then(parse_rate);
    if parsed.is_none() {
        let meant = || suggest::time::rate(place.node, is_rate);
        place.reject_for(errors, expected, meant);
    }
    parsed
}

/// Whether a text loads as a duration.
pub(super) fn is_duration(text: &str) -> bool {
    parse_duration_us(text).is_some()
}

/// Whether a text loads as a rate.
pub(super) fn is_rate(text: &str) -> bool {
    parse_rate(text).is_some()
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (tokens, period) = text.split_once('/')?;
    let tokens = tokens.trim();
    let is_plain = tokens.bytes().all(|byte| byte.is_ascii_digit());
    let tokens: u64 = tokens.parse().ok().filter(|tokens| is_plain && *tokens > 0)?;
    let period = period.trim();
    let starts_with_digit = period.starts_with(|first: char| first.is_ascii_digit());
    let period = if starts_with_digit { period.to_owned() } else { format!("1{period}") };
    Some(Rate { tokens, period_us: parse_duration_us(&period)? })
}

/// The units that load. The parser knows more, but `1month` has no fixed length and `sec` has one spelling too many.
const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];

fn parse_duration_us(text: &str) -> Option<u64> {
    let mut words = text.split(|char: char| !char.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    if !text.is_ascii() || !words.all(|word| UNITS.contains(&word)) {
        return None;
    }
    let duration = text.parse::<humantime::Duration>().ok()?;
    let is_whole = duration.subsec_nanos() % 1_000 == 0;
    let loads = is_whole && (DURATION_MIN..=DURATION_MAX).contains(&*duration);
    u64::try_from(duration.as_micros()).ok().filter(|_| loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_as_written() {
        let second = 1_000_000;
        let rows = [
            ("5/s", Some((5, second))),
            ("100/m", Some((100, 60 * second))),
            ("1/12s", Some((1, 12 * second))),
            ("1 / 1h", Some((1, 3600 * second))),
            ("10/sec", None),
            ("0/s", None),
            ("-1/s", None),
            ("1.5/s", None),
            ("5", None),
            ("5/", None),
            ("5/0s", None),
            ("5/1us", None),
            ("5/month", None),
            ("18446744073709551616/s", None),
        ];
        for (text, expected) in rows {
            let found = parse_rate(text).map(|rate| (rate.tokens, rate.period_us));
            assert_eq!(found, expected, "{text}");
        }
    }
}
