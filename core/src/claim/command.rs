//! What a request does with what it holds: renew it, keep its outcome, give it back. Each may be sent again when its
//! reply is lost: the owner tells whose it is, and doing it twice is doing it once.

use super::admission::bytes;
use super::ask::lasting_ms;
use super::{Fingerprint, Kept, Owner};
use crate::resp::{Reply, push_bulk, push_number};
use crate::script::{self, Script};

/// Everything that one request holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// The request.
    pub owner: Owner,
    /// Its claims.
    pub claims: Vec<HeldClaim>,
    /// Its slots of limits on requests at once.
    pub slots: Vec<HeldSlot>,
}

/// A claim that a request holds, or may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    /// Store key of the record.
    pub record_key: String,
    /// Store key of what is remembered beside it.
    pub fence_key: String,
    /// Its fence; `None` when the reply that named it is lost: then the owner alone is compared.
    pub fence: Option<u64>,
    /// How long a renewal lasts, in µs.
    pub lease_us: u64,
    /// How long the store keeps it, in ms; at least the lease and a second more, whatever is asked.
    pub ttl_ms: u64,
}

/// A slot that a request holds, or may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSlot {
    /// Store key of the limit's slots.
    pub key: String,
    /// How long a renewal lasts, in µs.
    pub lease_us: u64,
}

/// The end of what ran under a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub owner: Owner,
    /// Store key of the record.
    pub record_key: String,
    /// Store key of what is remembered beside it.
    pub fence_key: String,
    /// The claim's fence.
    pub fence: u64,
    /// The claim's attempt, for when the record is gone.
    pub attempt: u64,
    /// How long the outcome is kept, in ms.
    pub ttl_ms: u64,
    /// What the request is; its body may be known only now.
    pub fingerprint: Fingerprint,
    /// The outcome.
    pub kept: Kept,
}

/// A command about what a request holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Keep the outcome.
    Complete(Completion),
    /// Give everything back that is not finished.
    Release {
        /// What.
        holdings: Holdings,
        /// The request never reached the upstream: its attempt does not count.
        is_uncounted: bool,
    },
    /// Let everything last one lease from now on.
    Renew(Holdings),
}

/// What the store says of one holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// To a completion: it is another's that runs, and may be given back.
    Busy,
    /// What is stored is none of ours, and stays so.
    Corrupt,
    /// It is finished, and stays so.
    Done,
    /// Nothing is there.
    Gone,
    /// It is another's, and stays so.
    Lost,
    /// Done as asked; a completion also when it was finished before.
    Ok,
}

impl Command {
    /// Appends the command, marked with `tag`, which the reply echoes. `is_whole`: with the script's text instead of
    /// its SHA-1.
    pub fn write(&self, tag: &str, is_whole: bool, out: &mut Vec<u8>) {
        match self {
            Command::Complete(completion) => completion.write(tag, is_whole, out),
            Command::Release { holdings, is_uncounted } => holdings.write_release(*is_uncounted, tag, is_whole, out),
            Command::Renew(holdings) => holdings.write_renew(tag, is_whole, out),
        }
    }

    /// Reads what follows the tag in the reply: a word for each claim and then for each slot. `None` for anything that
    /// the script does not say.
    pub fn parse(&self, elements: &[Reply]) -> Option<Vec<Word>> {
        let (held, words): (usize, &[(&str, Word)]) = match self {
            Command::Complete(_) => (1, &COMPLETION_WORDS),
            Command::Release { holdings, .. } | Command::Renew(holdings) => {
                (holdings.claims.len().saturating_add(holdings.slots.len()), &WORDS)
            }
        };
        let word = |element| {
            let found = bytes(element)?;
            words.iter().find(|(text, _)| text.as_bytes() == found).map(|(_, word)| *word)
        };
        let said = elements.iter().map(word).collect::<Option<Vec<Word>>>()?;
        (said.len() == held).then_some(said)
    }
}

const WORDS: [(&str, Word); 5] =
    [("ok", Word::Ok), ("lost", Word::Lost), ("corrupt", Word::Corrupt), ("gone", Word::Gone), ("done", Word::Done)];
const COMPLETION_WORDS: [(&str, Word); 4] = [WORDS[0], WORDS[1], WORDS[2], ("busy", Word::Busy)];

const RENEW_ARGUMENTS: [usize; 2] = [4, 2];
const RELEASE_ARGUMENTS: [usize; 2] = [3, 1];

impl Holdings {
    fn write_renew(&self, tag: &str, is_whole: bool, out: &mut Vec<u8>) {
        self.write_head(script::RENEW, RENEW_ARGUMENTS, tag, is_whole, out);
        for claim in &self.claims {
            push_bulk(self.owner.as_bytes(), out);
            push_fence(claim.fence, out);
            push_number(claim.lease_us, out);
            push_number(lasting_ms(claim.ttl_ms, claim.lease_us), out);
        }
        for slot in &self.slots {
            push_bulk(self.owner.as_bytes(), out);
            push_number(slot.lease_us, out);
        }
    }

    fn write_release(&self, is_uncounted: bool, tag: &str, is_whole: bool, out: &mut Vec<u8>) {
        self.write_head(script::RELEASE, RELEASE_ARGUMENTS, tag, is_whole, out);
        for claim in &self.claims {
            push_bulk(self.owner.as_bytes(), out);
            push_fence(claim.fence, out);
            push_number(is_uncounted.into(), out);
        }
        for _ in &self.slots {
            push_bulk(self.owner.as_bytes(), out);
        }
    }

    fn write_head(&self, script: Script, arguments: [usize; 2], tag: &str, is_whole: bool, out: &mut Vec<u8>) {
        let (claims, slots) = (self.claims.len(), self.slots.len());
        let [of_claim, of_slot] = arguments;
        let arguments = claims.saturating_mul(of_claim).saturating_add(slots.saturating_mul(of_slot));
        script.push_call(is_whole, claims.saturating_mul(2).saturating_add(slots), arguments.saturating_add(2), out);
        for claim in &self.claims {
            push_bulk(claim.record_key.as_bytes(), out);
            push_bulk(claim.fence_key.as_bytes(), out);
        }
        self.slots.iter().for_each(|slot| push_bulk(slot.key.as_bytes(), out));
        push_bulk(tag.as_bytes(), out);
        push_bulk(itoa::Buffer::new().format(claims).as_bytes(), out);
    }
}

fn push_fence(fence: Option<u64>, out: &mut Vec<u8>) {
    match fence {
        Some(fence) => push_number(fence, out),
        None => push_bulk(b"", out),
    }
}

impl Completion {
    const ARGUMENTS: usize = 14;

    fn write(&self, tag: &str, is_whole: bool, out: &mut Vec<u8>) {
        script::COMPLETE.push_call(is_whole, 2, Completion::ARGUMENTS, out);
        push_bulk(self.record_key.as_bytes(), out);
        push_bulk(self.fence_key.as_bytes(), out);
        push_bulk(tag.as_bytes(), out);
        push_bulk(self.owner.as_bytes(), out);
        push_number(self.fence, out);
        push_number(self.ttl_ms, out);
        self.kept.write(out);
        push_bulk(self.fingerprint.head.as_bytes(), out);
        push_bulk(self.fingerprint.body.as_bytes(), out);
        push_bulk(self.fingerprint.recipe.as_bytes(), out);
        push_number(self.attempt, out);
    }
}

impl Kept {
    /// State, status, headers, body, encoding, reason.
    fn write(&self, out: &mut Vec<u8>) {
        let (state, status, fields): (&[u8], u16, [&[u8]; 4]) = match self {
            Kept::Done { status, headers, body, encoding } => {
                (b"D", *status, [headers, body, encoding.word().as_bytes(), b""])
            }
            Kept::Sealed { status, headers, reason } => (b"S", *status, [headers, b"", b"", reason.as_bytes()]),
        };
        push_bulk(state, out);
        push_number(status.into(), out);
        fields.iter().for_each(|field| push_bulk(field, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Encoding;
    use crate::resp::Decoder;

    fn holdings() -> Holdings {
        let claim = |name: &str, fence| HeldClaim {
            record_key: format!("{name}:r"),
            fence_key: format!("{name}:f"),
            fence,
            lease_us: 30_000_000,
            ttl_ms: 86_400_000,
        };
        Holdings {
            owner: Owner::new([0xab; 16]),
            claims: vec![claim("i", Some(7)), claim("l", None)],
            slots: vec![HeldSlot { key: "s".into(), lease_us: 5_000_000 }],
        }
    }

    fn completion(kept: Kept) -> Completion {
        Completion {
            owner: Owner::new([0xab; 16]),
            record_key: "i:r".into(),
            fence_key: "i:f".into(),
            fence: 7,
            attempt: 2,
            ttl_ms: 86_400_000,
            fingerprint: Fingerprint { head: "p".into(), body: "q".into(), recipe: "v".into() },
            kept,
        }
    }

    /// The command's words, empty ones as `-`, with `o` for the owner.
    fn words(command: &Command, is_whole: bool) -> String {
        let mut out = Vec::new();
        command.write("t1", is_whole, &mut out);
        let mut decoder = Decoder::default();
        decoder.extend(&out);
        let Ok(Some(Reply::Array(words))) = decoder.next_reply() else { panic!("not one command") };
        assert_eq!(decoder.next_reply(), Ok(None), "a second command");
        let words: Vec<String> = words.iter().map(|word| text(bytes(word).unwrap())).collect();
        words.join(" ")
    }

    fn text(word: &[u8]) -> String {
        match std::str::from_utf8(word).unwrap() {
            "" => "-".to_owned(),
            owner if owner == "ab".repeat(16) => "o".to_owned(),
            word => word.to_owned(),
        }
    }

    #[test]
    fn each_command_is_its_script_with_keys_and_arguments() {
        let done = Kept::Done { status: 201, headers: b"h".to_vec(), body: b"b".to_vec(), encoding: Encoding::Base64 };
        let sealed = Kept::Sealed { status: 200, headers: b"h".to_vec(), reason: "too-large".into() };
        let rows = [
            (
                Command::Renew(holdings()),
                script::RENEW,
                "5 i:r i:f l:r l:f s t1 2 o 7 30000000 86400000 o - 30000000 86400000 o 5000000",
            ),
            (
                Command::Release { holdings: holdings(), is_uncounted: true },
                script::RELEASE,
                "5 i:r i:f l:r l:f s t1 2 o 7 1 o - 1 o",
            ),
            (
                Command::Complete(completion(done)),
                script::COMPLETE,
                "2 i:r i:f t1 o 7 86400000 D 201 h b base64 - p q v 2",
            ),
            (
                Command::Complete(completion(sealed)),
                script::COMPLETE,
                "2 i:r i:f t1 o 7 86400000 S 200 h - - too-large p q v 2",
            ),
        ];
        for (command, script, expected) in rows {
            assert_eq!(words(&command, false), format!("EVALSHA {} {expected}", script.sha1));
            assert_eq!(words(&command, true), format!("EVAL {} {expected}", script.text()));
        }
    }

    #[test]
    fn a_reply_is_one_known_word_for_each_holding() {
        let word = |text: &str| Reply::BulkString(text.as_bytes().to_vec());
        let renew = Command::Renew(holdings());
        let reply = [word("ok"), word("lost"), word("gone")];
        assert_eq!(renew.parse(&reply), Some(vec![Word::Ok, Word::Lost, Word::Gone]));
        assert_eq!(renew.parse(&[word("done"), word("corrupt"), word("ok")]).map(|words| words.len()), Some(3));
        let complete =
            Command::Complete(completion(Kept::Sealed { status: 200, headers: Vec::new(), reason: String::new() }));
        assert_eq!(complete.parse(&[word("ok")]), Some(vec![Word::Ok]));
        assert_eq!(complete.parse(&[word("gone")]), None);
        let foreign = [&reply[..2], &[], &[word("ok"), word("ok"), word("OK")]];
        for elements in foreign {
            assert_eq!(renew.parse(elements), None);
        }
        assert_eq!(complete.parse(&[Reply::SimpleString("ok".into())]), None);
    }
}
