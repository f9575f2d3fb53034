//! The scripts that run inside the store, and the arguments they are given. The store loads a script by its text once
//! and is called by its SHA-1 afterwards.

use crate::algorithm::{Charge, Verdict};
use crate::resp::{Reply, push_array_head, push_bulk};

/// A script as the store knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// The text, for `EVAL`, in parts: several scripts share some of them.
    pub parts: &'static [&'static str],
    /// SHA-1 of the text in lower-case hex, for `EVALSHA`.
    pub sha1: &'static str,
}

impl Script {
    /// Appends the start of a call with `keys` keys and `arguments` arguments, which must follow. `is_whole`: with the
    /// text instead of the SHA-1.
    pub fn push_call(&self, is_whole: bool, keys: usize, arguments: usize, out: &mut Vec<u8>) {
        push_array_head(keys.saturating_add(arguments).saturating_add(3), out);
        match is_whole {
            true => {
                out.extend_from_slice(b"$4\r\nEVAL\r\n");
                self.push_text(out);
            }
            false => {
                out.extend_from_slice(b"$7\r\nEVALSHA\r\n");
                push_bulk(self.sha1.as_bytes(), out);
            }
        }
        push_bulk(itoa::Buffer::new().format(keys).as_bytes(), out);
    }

    /// The text.
    pub fn text(&self) -> String {
        self.parts.concat()
    }

    /// Appends the text as one bulk string.
    pub fn push_text(&self, out: &mut Vec<u8>) {
        push_bulk(self.text().as_bytes(), out);
    }
}

const ADMIT_BEGIN: &str = include_str!("../scripts/admit.lua");
const ADMIT_END: &str = include_str!("../scripts/admit_end.lua");
const CLOCK: &str = include_str!("../scripts/clock.lua");
const DECIDE_BEGIN: &str = include_str!("../scripts/decide.lua");
const DECIDE_END: &str = include_str!("../scripts/decide_end.lua");
const LIMITS: &str = include_str!("../scripts/limits.lua");
const RECORDS: &str = include_str!("../scripts/records.lua");

/// Decides a request against all its limits. Keys: one for each charge. Arguments: [`write_arguments`].
/// Reply: the tag, then `admitted` (1 or 0), `remaining`, `reset_us` and `retry_us` for each limit.
pub const DECIDE: Script =
    Script { parts: &[CLOCK, DECIDE_BEGIN, LIMITS, DECIDE_END], sha1: "94cb5870e330075cada5e0c81f207ebfa721c6fe" };

/// Looks at a request's claims, decides its limits and takes the claims, all or nothing. What it is told and says:
/// [`crate::claim`].
pub const ADMIT: Script = Script {
    parts: &[CLOCK, RECORDS, ADMIT_BEGIN, LIMITS, ADMIT_END],
    sha1: "14637a22b3c1701041dd8aad8a269140809172e9",
};

/// Lets claims and slots last one lease from now on.
pub const RENEW: Script = Script {
    parts: &[CLOCK, RECORDS, include_str!("../scripts/renew.lua")],
    sha1: "b0093b2e449e366963bca9fc31ee16891088dda0",
};

/// Keeps the outcome of what ran under a claim.
pub const COMPLETE: Script = Script {
    parts: &[CLOCK, RECORDS, include_str!("../scripts/complete.lua")],
    sha1: "8b3d5de0f4d34a0620c6f1ed6fa203863226a17a",
};

/// Gives claims and slots back.
pub const RELEASE: Script = Script {
    parts: &[CLOCK, RECORDS, include_str!("../scripts/release.lua")],
    sha1: "f8f0ed6725732d1d1eaa7f52bad5da53f796e559",
};

/// Writes a key that lives one second. One key, one argument: the tag. Reply: the tag. An error means that the store
/// does not take writes.
pub const PROBE: Script =
    Script { parts: &[include_str!("../scripts/probe.lua")], sha1: "5a6082546f21cc724a90f05584dbf983a7cb4e4f" };

/// Arguments of [`DECIDE`] for each charge.
pub const ARGUMENTS_PER_CHARGE: usize = 7;
/// Those before the cost: the algorithm, and whether it is enforced.
pub const ARGUMENTS_BEFORE_COST: usize = 2;
/// Those before the owner, where a charge [is held](crate::algorithm::Algorithm::is_held); one more follows it.
pub const ARGUMENTS_BEFORE_OWNER: usize = 5;

/// Hands the arguments of [`DECIDE`] to `write`, in order, without allocating: the tag, then
/// [`ARGUMENTS_PER_CHARGE`] for each charge. `owner` is who holds slots; nobody needs one otherwise.
pub fn write_arguments(tag: &[u8], owner: &[u8], charges: &[Charge<'_>], mut write: impl FnMut(&[u8])) {
    let mut digits = itoa::Buffer::new();
    write(tag);
    for charge in charges {
        let (algorithm, numbers) = charge.algorithm.script_fields();
        // One above the allowance is as impossible as any more, and stays exact.
        let cost = charge.cost().min(charge.algorithm.allowance().saturating_add(1));
        write(algorithm.as_bytes());
        write(if charge.enforce { b"1" } else { b"0" });
        write(digits.format(cost).as_bytes());
        for (place, number) in numbers.into_iter().enumerate() {
            match place {
                2 if charge.algorithm.is_held() => write(owner),
                _ => write(digits.format(number).as_bytes()),
            }
        }
    }
}

/// The arguments of [`DECIDE`], collected, for nobody who holds a slot.
pub fn arguments(tag: &[u8], charges: &[Charge<'_>]) -> Vec<Vec<u8>> {
    let mut arguments = Vec::with_capacity(charges.len().saturating_mul(ARGUMENTS_PER_CHARGE).saturating_add(1));
    write_arguments(tag, b"", charges, |argument| arguments.push(argument.to_vec()));
    arguments
}

/// Reads what scripts say of limits: four integers for each, `None` for what is no verdict.
pub(crate) fn verdicts(numbers: &[Reply]) -> Option<impl ExactSizeIterator<Item = Option<Verdict>>> {
    let (rows, []) = numbers.as_chunks::<4>() else { return None };
    Some(rows.iter().map(verdict))
}

fn verdict(row: &[Reply; 4]) -> Option<Verdict> {
    let number = |element: &Reply| match element {
        Reply::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let [admitted, remaining, reset_us, retry_us] = row;
    let admitted = match number(admitted)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(Verdict { admitted, remaining: number(remaining)?, reset_us: number(reset_us)?, retry_us: number(retry_us)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};

    #[test]
    fn each_sha1_is_of_its_text() {
        for script in [ADMIT, COMPLETE, DECIDE, PROBE, RELEASE, RENEW] {
            let sha1 = sha1_smol::Sha1::from(script.text()).digest().to_string();
            assert_eq!(script.sha1, sha1, "of the script that begins {:?}", script.text().lines().next());
        }
    }

    #[test]
    fn time_is_read_in_exactly_one_line() {
        for script in [ADMIT, COMPLETE, DECIDE, RELEASE, RENEW] {
            let text = script.text();
            let lines = text.lines().filter(|line| line.contains("redis.call('TIME')"));
            assert_eq!(lines.count(), 1);
            assert_eq!(text.matches("TIME").count(), 1);
        }
    }

    #[test]
    fn arguments_are_the_tag_and_seven_for_each_charge() {
        let bucket = TokenBucket::new(10, 5, 1_000_000).unwrap().into();
        let window = FixedWindow::new(100, 60_000_000).unwrap().into();
        let charges = [
            Charge { algorithm: &bucket, cost: 2, enforce: true },
            Charge { algorithm: &window, cost: u64::MAX, enforce: false },
        ];
        let arguments = arguments(b"t1", &charges);
        let texts: Vec<&str> = arguments.iter().map(|argument| std::str::from_utf8(argument).unwrap()).collect();
        let expected = "t1 bucket 1 2 10 200000 1 1 window 0 101 100 60000000 0 0";
        assert_eq!(texts.join(" "), expected);
    }
}
