//! What goes to the store and what comes back, as commands, texts and decisions.

use lockkeeper_core::algorithm::{Algorithm, Decision, Verdict};

use crate::world::Limit;

/// A command and its arguments.
pub type Words = Vec<Vec<u8>>;

pub fn words(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Reads whatever an algorithm stores at a key.
pub fn read(key: &str, algorithm: &Algorithm) -> Words {
    match algorithm {
        Algorithm::SlidingWindow(_) => words(&["LRANGE", key, "0", "-1"]),
        _ => words(&["GET", key]),
    }
}

pub fn texts(stored: &redis::Value) -> Vec<String> {
    match stored {
        redis::Value::Nil => Vec::new(),
        redis::Value::Array(_) => redis::from_redis_value(stored.clone()).expect("texts"),
        _ => vec![redis::from_redis_value(stored.clone()).expect("a text")],
    }
}

/// Reads the script's reply, which is the tag and integers only.
pub fn decision(reply: &redis::Value, limits: &[Limit]) -> Decision {
    let redis::Value::Array(parts) = reply else { panic!("not an array: {reply:?}") };
    assert_eq!(parts[0], redis::Value::BulkString(b"tag".to_vec()));
    let numbers: Vec<u64> = parts[1..].iter().map(number).collect();
    assert_eq!(numbers.len(), 4 * limits.len());
    let verdicts: Vec<Verdict> = numbers
        .chunks(4)
        .map(|of| Verdict { admitted: of[0] == 1, remaining: of[1], reset_us: of[2], retry_us: of[3] })
        .collect();
    let mut judged = limits.iter().zip(&verdicts);
    let allowed = judged.all(|(limit, verdict)| verdict.admitted || !limit.enforce);
    Decision { allowed, verdicts }
}

fn number(part: &redis::Value) -> u64 {
    match part {
        redis::Value::Int(number) => u64::try_from(*number).unwrap_or_else(|_| panic!("negative: {number}")),
        other => panic!("not an integer: {other:?}"),
    }
}
