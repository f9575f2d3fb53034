//! Durations and rates as other languages write them, in ours.

use crate::policy::node::Node;

/// Unit words, their unit in policy files and its length in microseconds.
const UNITS: [(&[&str], &str, f64); 7] = [
    (&["us", "µs", "usec", "microsecond", "microseconds"], "us", 1.0),
    (&["ms", "msec", "milli", "millis", "millisecond", "milliseconds"], "ms", 1e3),
    (&["s", "sec", "secs", "second", "seconds"], "s", 1e6),
    (&["m", "min", "mins", "minute", "minutes"], "m", 60e6),
    (&["h", "hr", "hrs", "hour", "hours"], "h", 3_600e6),
    (&["d", "day", "days"], "d", 86_400e6),
    (&["w", "week", "weeks"], "w", 604_800e6),
];
/// The units of policy files, longest first.
const OURS: [(&str, f64); 5] = [("d", 86_400e6), ("h", 3_600e6), ("m", 60e6), ("s", 1e6), ("ms", 1e3)];
const TEXT_BYTES_MAX: usize = 40;

/// The duration that a bare number of seconds, or a number with another unit's name, means.
pub fn duration(written: &Node, loads: impl Fn(&str) -> bool) -> Option<String> {
    let text = match written {
        Node::Number(number) => seconds_text(&number.to_string()),
        Node::Text(text) => seconds_text(text).or_else(|| duration_text(duration_us(text)?)),
        _ => None,
    };
    text.filter(|text| loads(text)).map(|text| format!("{text:?}"))
}

/// A number alone means seconds.
fn seconds_text(number: &str) -> Option<String> {
    let number = number.trim();
    match number.contains('.') {
        true => duration_text(number.parse::<f64>().ok()? * 1e6),
        false => number.parse::<u32>().ok().map(|seconds| format!("{seconds}s")),
    }
}

/// The rate that a bare number, or numbers with other units' names, mean.
pub fn rate(written: &Node, loads: impl Fn(&str) -> bool) -> Option<String> {
    let text = match written {
        Node::Number(tokens) => format!("{tokens}/s"),
        Node::Text(text) if text.len() <= TEXT_BYTES_MAX => rate_text(text)?,
        _ => return None,
    };
    Some(text).filter(|text| loads(text)).map(|text| format!("{text:?}"))
}

fn rate_text(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    if let Some(tokens) = text.strip_suffix("rps").or_else(|| text.strip_suffix("r/s")) {
        return whole_rate(tokens.trim().parse().ok()?, 1e6);
    }
    let split = [" per ", "/", " every ", " in "].iter().find_map(|word| text.split_once(word));
    let (tokens, period_us) = match split {
        Some((tokens, period)) => (tokens, duration_us(period)?),
        None => (text.as_str(), 1e6),
    };
    let tokens: String = tokens.trim().chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
    whole_rate(tokens.parse().ok()?, period_us)
}

/// Fewer than one token in a period is one in a longer period.
fn whole_rate(tokens: f64, period_us: f64) -> Option<String> {
    let (tokens, period_us) = if tokens.fract() == 0.0 { (tokens, period_us) } else { (1.0, period_us / tokens) };
    let period = duration_text(period_us)?;
    Some(format!("{tokens}/{}", period.strip_prefix('1').filter(|unit| is_unit(unit)).unwrap_or(&period)))
}

fn is_unit(text: &str) -> bool {
    OURS.iter().any(|(unit, _)| *unit == text)
}

/// A number with a unit, or either alone.
fn duration_us(text: &str) -> Option<f64> {
    let text = text.trim();
    if text.is_empty() || text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let unit_start = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_start)?;
    let number: f64 = if number.is_empty() { 1.0 } else { number.parse().ok()? };
    let unit = if unit.is_empty() { "s".into() } else { unit.trim().to_lowercase() };
    let (.., us) = UNITS.iter().find(|(words, ..)| words.contains(&unit.as_str()))?;
    Some(number * us)
}

/// In the longest unit that gives a whole number.
fn duration_text(us: f64) -> Option<String> {
    let whole = OURS.iter().find(|(_, unit_us)| us >= *unit_us && us % unit_us == 0.0)?;
    Some(format!("{}{}", us / whole.1, whole.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_of_other_languages_are_guessed() {
        let durations = [
            (Node::Number(60.0), Some("\"60s\"")),
            (Node::Number(0.5), Some("\"500ms\"")),
            (Node::Text("90".into()), Some("\"90s\"")),
            (Node::Text("5 minutes".into()), Some("\"5m\"")),
            (Node::Text("1hour".into()), Some("\"1h\"")),
            (Node::Text("1.5h".into()), Some("\"90m\"")),
            (Node::Text("minute".into()), Some("\"1m\"")),
            (Node::Text("1w".into()), Some("\"7d\"")),
            (Node::Text("1month".into()), None),
            (Node::Text("".into()), None),
            (Node::Null, None),
        ];
        for (written, meant) in durations {
            assert_eq!(duration(&written, |_| true).as_deref(), meant, "{written:?}");
        }
        let rates = [
            (Node::Number(5.0), Some("\"5/s\"")),
            (Node::Text("10/sec".into()), Some("\"10/s\"")),
            (Node::Text("10 per second".into()), Some("\"10/s\"")),
            (Node::Text("100 requests / minute".into()), Some("\"100/m\"")),
            (Node::Text("10rps".into()), Some("\"10/s\"")),
            (Node::Text("10r/s".into()), Some("\"10/s\"")),
            (Node::Text("10".into()), Some("\"10/s\"")),
            (Node::Text("0.5/s".into()), Some("\"1/2s\"")),
            (Node::Text("1/5 min".into()), Some("\"1/5m\"")),
            (Node::Text("1 every 10 seconds".into()), Some("\"1/10s\"")),
            (Node::Text("fast".into()), None),
        ];
        for (written, meant) in rates {
            assert_eq!(rate(&written, |_| true).as_deref(), meant, "{written:?}");
        }
    }
}
