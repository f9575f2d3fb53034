//! What the admitting script says of a request: its claims are taken, or why not.

use super::{Ask, ClaimKind, Encoding, Kept, status};
use crate::algorithm::Verdict;
use crate::resp::Reply;
use crate::script;

/// What came of a request's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Another request holds a claim.
    Busy {
        /// Index of the claim.
        claim: usize,
        /// Rest of the holder's lease, in µs.
        remaining_us: u64,
    },
    /// What is stored at a claim's key is none of ours.
    Corrupt {
        /// Index of the claim.
        claim: usize,
    },
    /// A limit denies; nothing was charged or taken.
    Denied,
    /// All claims are taken.
    Granted {
        /// For each claim.
        claims: Vec<Granted>,
        /// The request had been here before: it was not charged again, and these are its claims of then.
        is_again: bool,
    },
    /// It has run before, and this is what is known of it.
    Kept(Kept),
    /// The limit on answers from records denies.
    Limited,
    /// The key was used for another request.
    Mismatch {
        /// Index of the claim.
        claim: usize,
    },
    /// It ran before and nobody knows what came of it.
    Unknown {
        /// Index of the claim.
        claim: usize,
    },
}

/// A claim that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Higher than every one before it: what the upstream compares.
    pub fence: u64,
    /// Which attempt this is, from 1.
    pub attempt: u64,
}

/// What the script was asked; its reply must fit.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// How many limits, without the one on answers from records.
    pub limits: usize,
    /// Whether there is a limit on answers from records.
    pub has_replay_limit: bool,
    /// The claims.
    pub claims: &'a [Ask],
}

impl Admission {
    /// The same of the claim at that index, where it is about one.
    pub(crate) fn at(self, claim: usize) -> Admission {
        match self {
            Admission::Busy { remaining_us, .. } => Admission::Busy { claim, remaining_us },
            Admission::Corrupt { .. } => Admission::Corrupt { claim },
            Admission::Mismatch { .. } => Admission::Mismatch { claim },
            Admission::Unknown { .. } => Admission::Unknown { claim },
            Admission::Denied | Admission::Granted { .. } | Admission::Kept(_) | Admission::Limited => self,
        }
    }

    /// Reads what follows the tag in the script's reply: the admission and what each limit says that was decided. `None`
    /// for anything that the script does not say.
    pub fn parse(elements: &[Reply], asked: Asked<'_>) -> Option<(Admission, Vec<Verdict>)> {
        let (word, rest) = elements.split_first()?;
        let (admission, rows) = match bytes(word)? {
            word @ (b"new" | b"mine") => granted(word == b"mine", rest, asked)?,
            b"denied" => (Admission::Denied, rest),
            b"limited" => (Admission::Limited, rest),
            b"busy" => {
                let ([claim, remaining_us], rows) = numbers(rest)?;
                (Admission::Busy { claim: usize::try_from(claim).ok()?, remaining_us }, rows)
            }
            b"mismatch" => at_claim(rest, |claim| Admission::Mismatch { claim })?,
            b"unknown" => at_claim(rest, |claim| Admission::Unknown { claim })?,
            b"corrupt" => at_claim(rest, |claim| Admission::Corrupt { claim })?,
            b"done" => done(rest)?,
            b"sealed" => sealed(rest)?,
            _ => return None,
        };
        let verdicts: Vec<Verdict> = script::verdicts(rows)?.collect::<Option<_>>()?;
        (admission.limits_decided(asked)? == verdicts.len()).then_some((admission, verdicts))
    }

    /// How many limits are decided with it; `None` when it cannot come of what was asked.
    fn limits_decided(&self, asked: Asked<'_>) -> Option<usize> {
        let replay_limits = usize::from(asked.has_replay_limit);
        let kind = |claim: usize| asked.claims.get(claim).map(|ask| ask.kind);
        let first = asked.claims.iter().map(|ask| ask.kind).find(|kind| *kind == ClaimKind::Idempotency);
        match self {
            Admission::Granted { is_again: false, .. } => Some(asked.limits),
            Admission::Granted { is_again: true, .. } => Some(0),
            Admission::Denied => Some(asked.limits).filter(|limits| *limits > 0),
            Admission::Limited => Some(replay_limits).filter(|limits| *limits > 0),
            Admission::Busy { claim, .. } => {
                kind(*claim).map(|kind| if kind == ClaimKind::Lock { 0 } else { replay_limits })
            }
            Admission::Mismatch { claim } | Admission::Unknown { claim } => {
                kind(*claim).filter(|kind| *kind == ClaimKind::Idempotency).map(|_| replay_limits)
            }
            Admission::Kept(_) => first.map(|_| replay_limits),
            Admission::Corrupt { claim } => kind(*claim).map(|_| 0),
        }
    }
}

fn granted<'r>(is_again: bool, rest: &'r [Reply], asked: Asked<'_>) -> Option<(Admission, &'r [Reply])> {
    let (fields, rows) = rest.split_at_checked(asked.claims.len().checked_mul(2)?)?;
    let claims = fields.chunks_exact(2).map(|pair| match pair {
        [fence, attempt] => Some(Granted { fence: digits(bytes(fence)?)?, attempt: number(attempt)? }),
        _ => None,
    });
    Some((Admission::Granted { claims: claims.collect::<Option<_>>()?, is_again }, rows))
}

fn at_claim(rest: &[Reply], admission: impl Fn(usize) -> Admission) -> Option<(Admission, &[Reply])> {
    let ([claim], rows) = numbers(rest)?;
    Some((admission(usize::try_from(claim).ok()?), rows))
}

fn done(rest: &[Reply]) -> Option<(Admission, &[Reply])> {
    let ([code, headers, body, encoding], rows) = rest.split_first_chunk()?;
    let kept = Kept::Done {
        status: status(bytes(code)?)?,
        headers: bytes(headers)?.to_vec(),
        body: bytes(body)?.to_vec(),
        encoding: Encoding::parse(bytes(encoding)?)?,
    };
    Some((Admission::Kept(kept), rows))
}

fn sealed(rest: &[Reply]) -> Option<(Admission, &[Reply])> {
    let ([code, headers, reason], rows) = rest.split_first_chunk()?;
    let kept = Kept::Sealed {
        status: status(bytes(code)?)?,
        headers: bytes(headers)?.to_vec(),
        reason: String::from_utf8(bytes(reason)?.to_vec()).ok()?,
    };
    Some((Admission::Kept(kept), rows))
}

fn numbers<const N: usize>(elements: &[Reply]) -> Option<([u64; N], &[Reply])> {
    let (fields, rest) = elements.split_first_chunk::<N>()?;
    let mut found = [0; N];
    for (place, field) in found.iter_mut().zip(fields) {
        *place = number(field)?;
    }
    Some((found, rest))
}

fn number(element: &Reply) -> Option<u64> {
    match element {
        Reply::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

pub(super) fn bytes(element: &Reply) -> Option<&[u8]> {
    match element {
        Reply::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Fingerprint;
    use crate::policy::OnUnknown;

    /// Words are bulk strings, and so are numbers after `$`; other numbers are integers.
    fn reply(text: &str) -> Vec<Reply> {
        let element = |word: &str| match word.parse() {
            Ok(number) => Reply::Integer(number),
            Err(_) => Reply::BulkString(word.trim_start_matches('$').into()),
        };
        text.split(' ').map(element).collect()
    }

    fn ask(kind: ClaimKind) -> Ask {
        Ask {
            kind,
            record_key: String::new(),
            fence_key: String::new(),
            fingerprint: Fingerprint::default(),
            lease_us: 1,
            ttl_ms: 1,
            on_unknown: OnUnknown::Reject,
            floor: 0,
        }
    }

    fn rows() -> Vec<(&'static str, Admission, usize)> {
        let claims = vec![Granted { fence: 1_796_083_200_123_456, attempt: 1 }, Granted { fence: 7, attempt: 3 }];
        let done = Kept::Done { status: 201, headers: b"h".to_vec(), body: b"b".to_vec(), encoding: Encoding::Base64 };
        let sealed = Kept::Sealed { status: 200, headers: Vec::new(), reason: "too-large".into() };
        vec![
            (
                "new $1796083200123456 1 $7 3 1 9 60 0 0 0 0 1",
                Admission::Granted { claims: claims.clone(), is_again: false },
                2,
            ),
            ("mine $1796083200123456 1 $7 3", Admission::Granted { claims, is_again: true }, 0),
            ("denied 1 9 0 0 0 0 60 60", Admission::Denied, 2),
            ("limited 0 0 60 60", Admission::Limited, 1),
            ("busy 0 30000000 1 9 60 0", Admission::Busy { claim: 0, remaining_us: 30_000_000 }, 1),
            ("busy 1 1", Admission::Busy { claim: 1, remaining_us: 1 }, 0),
            ("mismatch 0 1 9 60 0", Admission::Mismatch { claim: 0 }, 1),
            ("unknown 0 1 9 60 0", Admission::Unknown { claim: 0 }, 1),
            ("corrupt 0", Admission::Corrupt { claim: 0 }, 0),
            ("corrupt 1", Admission::Corrupt { claim: 1 }, 0),
            ("done $201 h b base64 1 9 60 0", Admission::Kept(done), 1),
            ("sealed $200 $ too-large 1 9 60 0", Admission::Kept(sealed), 1),
        ]
    }

    #[test]
    fn each_word_brings_its_fields_and_the_limits_that_were_decided() {
        let claims = [ask(ClaimKind::Idempotency), ask(ClaimKind::Lock)];
        let asked = Asked { limits: 2, has_replay_limit: true, claims: &claims };
        for (text, admission, limits) in rows() {
            let (found, verdicts) = Admission::parse(&reply(text), asked).expect(text);
            assert_eq!((found, verdicts.len()), (admission, limits), "{text}");
        }
        let (_, verdicts) = Admission::parse(&reply(rows()[3].0), asked).unwrap();
        assert_eq!(verdicts, [Verdict { admitted: false, remaining: 0, reset_us: 60, retry_us: 60 }]);
    }

    #[test]
    fn anything_else_is_no_admission() {
        let claims = [ask(ClaimKind::Idempotency), ask(ClaimKind::Lock)];
        let asked = Asked { limits: 2, has_replay_limit: true, claims: &claims };
        for (text, ..) in rows() {
            let whole = reply(text);
            for index in 0..whole.len() {
                let changed = [Reply::Null, Reply::Integer(-1), Reply::SimpleString("new".into())];
                for element in changed {
                    let mut other = whole.clone();
                    other[index] = element.clone();
                    assert_eq!(Admission::parse(&other, asked), None, "{text}: {element:?} at {index}");
                }
                let mut shorter = whole.clone();
                shorter.remove(index);
                assert_eq!(Admission::parse(&shorter, asked), None, "{text} without {index}");
                let mut longer = whole.clone();
                longer.insert(index, whole[index].clone());
                assert_eq!(Admission::parse(&longer, asked), None, "{text} with {index} twice");
            }
        }
        let foreign = [
            "ok",
            "NEW $7 1 $7 1",
            "new $-7 1 $7 3 1 9 60 0 0 0 0 1",
            "new $7 1 $7 3 2 9 60 0 0 0 0 1",
            "busy 2 1",
            "mismatch 1",
            "unknown 1",
            "corrupt 2",
            "done $20 h b base64 1 9 60 0",
            "done $201 h b gzip 1 9 60 0",
        ];
        for text in foreign {
            assert_eq!(Admission::parse(&reply(text), asked), None, "{text}");
        }
        assert_eq!(Admission::parse(&[], asked), None);
    }

    #[test]
    fn without_limits_and_claims_there_is_little_to_say() {
        let locks = [ask(ClaimKind::Lock)];
        let asked = Asked { limits: 0, has_replay_limit: false, claims: &locks };
        assert!(Admission::parse(&reply("new $7 1"), asked).is_some());
        for text in ["denied", "limited", "limited 0 0 60 60", "done $201 h b base64", "mismatch 0", "unknown 0"] {
            assert_eq!(Admission::parse(&reply(text), asked), None, "{text}");
        }
    }
}
