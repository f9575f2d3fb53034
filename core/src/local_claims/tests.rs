//! The table on a shared map, as workers of one instance would use it, beside the state machine on plain records.

#![allow(clippy::arithmetic_side_effects, reason = "a test may overflow, loudly")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::set::Set;
use super::{CLAIMS_OF_SET, ClaimStep, ClaimTable, Known, RESPONSE_BYTES_MAX, SET_BYTES_MAX, Swept, Taken};
use crate::claim::record::{self, Place, Stored};
use crate::claim::{
    Admission, Ask, ClaimKind, Command, Completion, Encoding, Fingerprint, Granted, HeldClaim, Holdings, Kept, Owner,
    Word,
};
use crate::local::Swap;
use crate::policy::OnUnknown;

const LEASE_US: u64 = 30_000_000;
/// As a host gives it: of the time of day.
const PUSH_FENCE: u64 = 1_800_000_000_000_001;
const NOW_US: u64 = 7 * 3_600_000_000;

/// A host's shared data, and one table in it.
struct Host {
    map: Mutex<HashMap<String, (Vec<u8>, u32)>>,
    table: ClaimTable,
}

impl Host {
    fn new(sets: u32) -> Host {
        Host { map: Mutex::default(), table: ClaimTable::new(sets, *b"sixteen byte key") }
    }

    fn run<T>(&self, mut step: ClaimStep<'_, T>) -> T {
        loop {
            step = match step {
                ClaimStep::Done(done) => return done,
                ClaimStep::Read(read) => {
                    let found = self.map.lock().unwrap().get(read.key()).cloned();
                    let (bytes, version) = found.map_or((Vec::new(), None), |(bytes, version)| (bytes, Some(version)));
                    read.resume(&bytes, version)
                }
                ClaimStep::Write(write) => {
                    let swap = self.write(write.key(), write.bytes(), write.version());
                    write.resume(swap)
                }
            };
        }
    }

    fn write(&self, key: &str, bytes: &[u8], version: Option<u32>) -> Swap {
        let mut map = self.map.lock().unwrap();
        if map.get(key).map(|(_, version)| *version) != version {
            return Swap::Mismatch;
        }
        map.insert(key.into(), (bytes.to_vec(), version.unwrap_or(0) + 1));
        Swap::Written
    }

    fn take(&self, asks: &[Ask], owner: Owner, now_us: u64) -> Taken {
        self.run(self.table.take(asks, owner, now_us))
    }

    fn adopt(&self, ask: &Ask, fence: u64, owner: Owner, now_us: u64) -> Taken {
        let granted = [Granted { fence, attempt: 1 }];
        self.run(self.table.adopt(std::slice::from_ref(ask), &granted, owner, now_us))
    }

    fn tell(&self, command: &Command, known: Known, now_us: u64) -> Vec<Word> {
        self.run(self.table.tell(command, known, now_us))
    }

    fn sweep(&self, now_us: u64) -> Swept {
        let mut all = Swept { due: Vec::new(), is_clean: true };
        for set in 0..self.table.sets() {
            let Swept { due, is_clean } = self.run(self.table.sweep(set, PUSH_FENCE, now_us));
            all.due.extend(due);
            all.is_clean &= is_clean;
        }
        all
    }

    /// Whose claims stand in a table of one set.
    fn names(&self) -> Vec<String> {
        let map = self.map.lock().unwrap();
        let set = map.values().next().and_then(|(bytes, _)| Set::read(bytes, NOW_US)).unwrap();
        let keys = set.entries().map(|entry| entry.record_key.replace("prod:p.idempotency:{", "").replace("}:r", ""));
        let mut names: Vec<String> = keys.collect();
        names.sort();
        names
    }

    fn largest(&self) -> usize {
        self.map.lock().unwrap().values().map(|(bytes, _)| bytes.len()).max().unwrap_or(0)
    }
}

fn owner(number: usize) -> Owner {
    let mut random = [1; 16];
    random[..8].copy_from_slice(&(number as u64).to_le_bytes());
    Owner::new(random)
}

fn ask(name: &str, on_unknown: OnUnknown) -> Ask {
    Ask {
        kind: ClaimKind::Idempotency,
        record_key: format!("prod:p.idempotency:{{{name}}}:r"),
        fence_key: format!("prod:p.idempotency:{{{name}}}:f"),
        fingerprint: Fingerprint { head: "h".into(), body: "b".into(), recipe: "1".into() },
        lease_us: LEASE_US,
        ttl_ms: 86_400_000,
        on_unknown,
        floor: 1_800_000_000_000_000,
    }
}

fn strict(name: &str) -> Ask {
    ask(name, OnUnknown::Reject)
}

fn lock(name: &str) -> Ask {
    let fingerprint = Fingerprint::default();
    Ask { kind: ClaimKind::Lock, fingerprint, ..ask(name, OnUnknown::RetryAfterLease) }
}

fn done(body: &[u8]) -> Kept {
    Kept::Done { status: 201, headers: Vec::new(), body: body.to_vec(), encoding: Encoding::Plain }
}

fn completion(ask: &Ask, owner: Owner, fence: u64, kept: Kept) -> Completion {
    Completion {
        owner,
        record_key: ask.record_key.clone(),
        fence_key: ask.fence_key.clone(),
        fence,
        attempt: 1,
        ttl_ms: ask.ttl_ms,
        fingerprint: ask.fingerprint.clone(),
        kept,
    }
}

fn complete(ask: &Ask, owner: Owner, fence: u64, kept: Kept) -> Command {
    Command::Complete(completion(ask, owner, fence, kept))
}

fn holdings(ask: &Ask, owner: Owner, fence: Option<u64>) -> Holdings {
    let held = HeldClaim {
        record_key: ask.record_key.clone(),
        fence_key: ask.fence_key.clone(),
        fence,
        lease_us: ask.lease_us,
        ttl_ms: ask.ttl_ms,
    };
    Holdings { owner, claims: vec![held], slots: Vec::new() }
}

fn release(ask: &Ask, owner: Owner, fence: Option<u64>) -> Command {
    Command::Release { holdings: holdings(ask, owner, fence), is_uncounted: false }
}

#[track_caller]
fn fence(taken: &Taken) -> u64 {
    let Taken::Granted(claims) = taken else { panic!("not granted: {taken:?}") };
    claims[0].fence
}

fn is_busy(taken: &Taken) -> bool {
    matches!(taken, Taken::Answered(Admission::Busy { .. }))
}

#[test]
fn a_key_runs_once_and_its_duplicates_get_what_came_of_it() {
    let host = Host::new(4);
    let asks = [strict("k")];
    let granted = fence(&host.take(&asks, owner(1), NOW_US));
    assert_eq!(granted, NOW_US, "the store's floor is none of the table's clock");
    assert!(is_busy(&host.take(&asks, owner(2), NOW_US + 1)));
    let mut other = asks.clone();
    other[0].fingerprint.body = "c".into();
    assert_eq!(host.take(&other, owner(3), NOW_US + 1), Taken::Answered(Admission::Mismatch { claim: 0 }));
    let command = complete(&asks[0], owner(1), granted, done(b"made"));
    assert_eq!(host.tell(&command, Known::Not, NOW_US + 2), [Word::Ok]);
    assert_eq!(host.tell(&command, Known::Not, NOW_US + 2), [Word::Ok], "once more");
    assert_eq!(host.take(&asks, owner(4), NOW_US + 3), Taken::Answered(Admission::Kept(done(b"made"))));
}

#[test]
fn an_unknown_outcome_is_left_or_taken_over_as_the_policy_says() {
    let host = Host::new(4);
    for (ask, expected) in [(strict("a"), false), (ask("b", OnUnknown::RetryAfterLease), true), (lock("c"), true)] {
        let asks = [ask];
        fence(&host.take(&asks, owner(1), NOW_US));
        let taken = host.take(&asks, owner(2), NOW_US + LEASE_US);
        match expected {
            false => assert_eq!(taken, Taken::Answered(Admission::Unknown { claim: 0 })),
            true => assert!(fence(&taken) > NOW_US),
        }
        let late = complete(&asks[0], owner(1), NOW_US, done(b"late"));
        let word = host.tell(&late, Known::Not, NOW_US + LEASE_US + 1);
        assert_eq!(word, [if expected { Word::Busy } else { Word::Ok }], "{asks:?}");
    }
}

#[test]
fn claims_are_taken_together_or_not_at_all() {
    let host = Host::new(4);
    let locks = [lock("resource")];
    fence(&host.take(&locks, owner(1), NOW_US));
    let both = [strict("k"), locks[0].clone()];
    let taken = host.take(&both, owner(2), NOW_US);
    assert_eq!(taken, Taken::Answered(Admission::Busy { claim: 1, remaining_us: LEASE_US }));
    assert_eq!(host.tell(&release(&locks[0], owner(1), None), Known::Not, NOW_US), [Word::Ok]);
    assert!(matches!(host.take(&both, owner(3), NOW_US), Taken::Granted(claims) if claims.len() == 2));
}

#[test]
fn a_renewed_claim_stays_its_holders() {
    let host = Host::new(4);
    let asks = [strict("k")];
    let granted = Some(fence(&host.take(&asks, owner(1), NOW_US)));
    let renew = Command::Renew(holdings(&asks[0], owner(1), granted));
    assert_eq!(host.tell(&renew, Known::Not, NOW_US + LEASE_US / 2), [Word::Ok]);
    assert!(is_busy(&host.take(&asks, owner(2), NOW_US + LEASE_US)));
    let strangers = Command::Renew(holdings(&asks[0], owner(2), None));
    assert_eq!(host.tell(&strangers, Known::Not, NOW_US + LEASE_US), [Word::Lost]);
    assert_eq!(host.tell(&release(&asks[0], owner(2), None), Known::Not, NOW_US), [Word::Lost]);
}

#[test]
fn a_full_set_throws_out_what_is_done_and_never_what_runs_or_is_unknown() {
    let host = Host::new(1);
    let asks: Vec<Ask> = (0..CLAIMS_OF_SET).map(|number| strict(&number.to_string())).collect();
    for (number, ask) in asks.iter().enumerate() {
        fence(&host.take(std::slice::from_ref(ask), owner(number), NOW_US + number as u64));
    }
    // Running, then unknown: none of them goes.
    let late_us = NOW_US + 2 * LEASE_US;
    for now_us in [NOW_US + 9, late_us] {
        assert_eq!(host.take(&[strict("extra")], owner(99), now_us), Taken::NoRoom);
        assert_eq!(host.adopt(&strict("extra"), 7, owner(99), now_us), Taken::NoRoom);
    }
    for (number, known) in [(6, Known::Stored), (2, Known::Not), (4, Known::Refused)] {
        let command = complete(&asks[number], owner(number), NOW_US + number as u64, done(b"x"));
        assert_eq!(host.tell(&command, known, late_us), [Word::Ok]);
    }
    // What the store keeps goes first, then the oldest.
    for (extra, gone) in ["6", "2", "4"].into_iter().enumerate() {
        assert!(host.names().iter().any(|name| name == gone));
        fence(&host.take(&[strict(&format!("extra {extra}"))], owner(100 + extra), late_us));
        assert!(host.names().iter().all(|name| name != gone), "{:?}", host.names());
    }
    assert_eq!(host.take(&[strict("one more")], owner(200), late_us), Taken::NoRoom);
    assert_eq!(host.names(), ["0", "1", "3", "5", "7", "extra 0", "extra 1", "extra 2"]);
}

#[test]
fn what_may_run_again_makes_room_once_its_lease_is_over() {
    let host = Host::new(1);
    for number in 0..CLAIMS_OF_SET {
        fence(&host.take(&[lock(&number.to_string())], owner(number), NOW_US));
    }
    assert_eq!(host.take(&[lock("extra")], owner(99), NOW_US + LEASE_US - 1), Taken::NoRoom);
    fence(&host.take(&[lock("extra")], owner(99), NOW_US + LEASE_US));
}

#[test]
fn responses_are_bounded_each_and_together() {
    let host = Host::new(1);
    for number in 0..CLAIMS_OF_SET {
        let ask = strict(&number.to_string());
        let granted = fence(&host.take(std::slice::from_ref(&ask), owner(number), NOW_US));
        let command = complete(&ask, owner(number), granted, done(&[b'x'; RESPONSE_BYTES_MAX]));
        assert_eq!(host.tell(&command, Known::Not, NOW_US + 1), [Word::Ok]);
        assert!(host.largest() <= SET_BYTES_MAX);
    }
    assert_eq!(host.names(), ["5", "6", "7"], "the oldest went");
    let ask = strict("large");
    let granted = fence(&host.take(std::slice::from_ref(&ask), owner(50), NOW_US));
    let command = complete(&ask, owner(50), granted, done(&[b'x'; RESPONSE_BYTES_MAX + 1]));
    assert_eq!(host.tell(&command, Known::Not, NOW_US + 1), [Word::Ok]);
    let sealed = Kept::Sealed { status: 201, headers: Vec::new(), reason: "too-large".into() };
    assert_eq!(host.take(&[ask], owner(51), NOW_US + 2), Taken::Answered(Admission::Kept(sealed)));
}

#[test]
fn an_outcome_is_forgotten_when_its_retention_ends() {
    let host = Host::new(1);
    let asks = [Ask { ttl_ms: 60_000, ..strict("k") }];
    let granted = fence(&host.take(&asks, owner(1), NOW_US));
    host.tell(&complete(&asks[0], owner(1), granted, done(b"x")), Known::Not, NOW_US);
    assert!(matches!(host.take(&asks, owner(2), NOW_US + 59_999_999), Taken::Answered(Admission::Kept(_))));
    fence(&host.take(&asks, owner(2), NOW_US + 60_000_000));
}

#[test]
fn the_store_grants_unless_the_table_alone_knows_the_key() {
    let host = Host::new(4);
    let asks = [strict("k")];
    // What the store granted and then granted to another is the store's affair.
    assert_eq!(fence(&host.adopt(&asks[0], 900, owner(1), NOW_US)), 900);
    assert_eq!(fence(&host.adopt(&asks[0], 901, owner(2), NOW_US + 1)), 901);
    // The store fails while it runs.
    assert!(is_busy(&host.take(&asks, owner(3), NOW_US + 2)));
    let command = complete(&asks[0], owner(2), 901, done(b"one"));
    assert_eq!(host.tell(&command, Known::Not, NOW_US + 3), [Word::Ok]);
    assert_eq!(host.take(&asks, owner(3), NOW_US + 4), Taken::Answered(Admission::Kept(done(b"one"))));
    // The store is back: it is told under its own fence, unless it has lost the claim and grants it again.
    assert_eq!(host.sweep(NOW_US + 4).due, [completion(&asks[0], owner(2), 901, done(b"one"))]);
    assert_eq!(host.adopt(&asks[0], 902, owner(4), NOW_US + 5), Taken::Answered(Admission::Kept(done(b"one"))));
    // The store keeps it, and then an operator clears it there.
    assert_eq!(host.tell(&command, Known::Stored, NOW_US + 6), [Word::Ok]);
    assert_eq!(fence(&host.adopt(&asks[0], 903, owner(5), NOW_US + 7)), 903);
}

#[test]
fn a_claim_of_the_table_is_not_granted_again_when_the_store_is_back() {
    let host = Host::new(4);
    let asks = [strict("k"), lock("resource")];
    let granted = host.take(&asks, owner(1), NOW_US);
    assert!(matches!(&granted, Taken::Granted(claims) if claims.len() == 2));
    for ask in &asks {
        assert!(is_busy(&host.adopt(ask, 900, owner(2), NOW_US + 1)));
    }
    assert_eq!(host.tell(&release(&asks[1], owner(1), None), Known::Not, NOW_US + 2), [Word::Ok]);
    assert_eq!(fence(&host.adopt(&asks[1], 900, owner(2), NOW_US + 3)), 900);
}

#[test]
fn outcomes_that_the_table_alone_knows_come_up_until_the_store_has_answered() {
    let host = Host::new(4);
    let second = 1_000_000;
    let (running, finished, refused) = (strict("running"), strict("finished"), strict("refused"));
    fence(&host.take(std::slice::from_ref(&running), owner(1), NOW_US));
    assert_eq!(host.sweep(NOW_US), Swept { due: Vec::new(), is_clean: true });
    for (number, ask) in [(2, &finished), (3, &refused)] {
        let granted = fence(&host.take(std::slice::from_ref(ask), owner(number), NOW_US));
        host.tell(&complete(ask, owner(number), granted, done(b"x")), Known::Not, NOW_US);
    }
    let Swept { mut due, is_clean } = host.sweep(NOW_US);
    due.sort_by(|one, other| one.record_key.cmp(&other.record_key));
    let expected =
        [(2, &finished), (3, &refused)].map(|(number, ask)| completion(ask, owner(number), PUSH_FENCE, done(b"x")));
    assert_eq!((due.as_slice(), is_clean), (&expected[..], false));
    assert_eq!(host.sweep(NOW_US + 4 * second), Swept { due: Vec::new(), is_clean: false });
    assert_eq!(host.sweep(NOW_US + 5 * second).due.len(), 2, "the store has not answered");
    for call in &due {
        host.tell(&Command::Complete(call.clone()), Known::after(Some(Word::Busy)), NOW_US + 5 * second);
    }
    assert_eq!(host.sweep(NOW_US + 10 * second).due.len(), 2, "a claim that may be given back stood in the way");
    let [confirmed, refusal] = expected.map(Command::Complete);
    host.tell(&confirmed, Known::Stored, NOW_US + 11 * second);
    host.tell(&refusal, Known::after(Some(Word::Lost)), NOW_US + 11 * second);
    assert_eq!(host.sweep(NOW_US + 60 * second), Swept { due: Vec::new(), is_clean: true });
    // Refused is not forgotten: here it has run.
    let taken = host.adopt(&refused, 900, owner(4), NOW_US + 61 * second);
    assert_eq!(taken, Taken::Answered(Admission::Kept(done(b"x"))));
}

#[test]
fn a_set_that_no_table_wrote_is_not_taken_for_empty() {
    let host = Host::new(1);
    let asks = [strict("k")];
    fence(&host.take(&asks, owner(1), NOW_US));
    let (key, (bytes, _)) =
        host.map.lock().unwrap().iter().next().map(|(key, value)| (key.clone(), value.clone())).unwrap();
    for cut in 1..bytes.len() {
        host.map.lock().unwrap().insert(key.clone(), (bytes[..cut].to_vec(), 9));
        assert_eq!(host.take(&asks, owner(2), NOW_US) == Taken::NoRoom, cut > 1, "cut at {cut}");
    }
    let newer = [&[9], &bytes[1..]].concat();
    host.map.lock().unwrap().insert(key, (newer, 9));
    assert_eq!(host.take(&asks, owner(2), NOW_US), Taken::NoRoom);
}

#[test]
fn of_many_workers_one_at_a_time_is_granted_a_claim() {
    const WORKERS: usize = 8;
    const KEYS: usize = 40;
    let host = Host::new(2);
    let number = AtomicU64::new(0);
    let running: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let work = |worker: usize| {
        for turn in 0..10 * KEYS {
            let (key, me) = (turn % KEYS, owner(worker * 1_000 + turn));
            let asks = [strict(&key.to_string())];
            let now_us = NOW_US + number.fetch_add(1, Ordering::Relaxed);
            if let Taken::Granted(claims) = host.take(&asks, me, now_us) {
                assert_eq!(running[key].fetch_add(1, Ordering::Relaxed), 0, "{key} runs twice at a time");
                std::thread::yield_now();
                running[key].fetch_sub(1, Ordering::Relaxed);
                let word = host.tell(&release(&asks[0], me, Some(claims[0].fence)), Known::Not, now_us);
                assert_eq!(word, [Word::Ok]);
            }
        }
    };
    let work = &work;
    std::thread::scope(|scope| (0..WORKERS).for_each(|worker| drop(scope.spawn(move || work(worker)))));
}

/// One random thing that a worker does about one of three keys.
fn act(host: &Host, model: &mut [Place], input: &mut arbtest::arbitrary::Unstructured<'_>, now_us: u64) -> Option<()> {
    let key = input.choose_index(model.len()).ok()?;
    let on_unknown = *input.choose(&[OnUnknown::Reject, OnUnknown::RetryAfterLease]).ok()?;
    let ask = Ask { floor: 0, ..ask(&key.to_string(), on_unknown) };
    let me = owner(input.choose_index(4).ok()?);
    let held = match &model[key].stored {
        Stored::Record(record) if input.ratio(2, 3).ok()? => Some(record.fence),
        _ => Some(now_us / 2),
    };
    let place = &mut model[key];
    match input.choose_index(4).ok()? {
        0 => {
            let said = host.take(std::slice::from_ref(&ask), me, now_us);
            let expected = record::begin(std::slice::from_mut(place), std::slice::from_ref(&ask), me, now_us);
            let expected = match expected {
                Admission::Granted { claims, .. } => Taken::Granted(claims),
                other => Taken::Answered(other),
            };
            assert_eq!(said, expected);
        }
        1 => {
            let said = host.tell(&Command::Renew(holdings(&ask, me, held)), Known::Not, now_us);
            assert_eq!(said, [place.renew(me, held, LEASE_US, now_us)]);
        }
        2 => {
            let said = host.tell(&release(&ask, me, held), Known::Not, now_us);
            assert_eq!(said, [place.release(me, held, true, now_us)]);
        }
        _ => {
            let completion = completion(&ask, me, held?, done(b"x"));
            let said = host.tell(&Command::Complete(completion.clone()), Known::Not, now_us);
            let is_own = matches!(&place.stored, Stored::Record(record) if record.owner == me && record.kept.is_some());
            assert_eq!(said, [if is_own { Word::Ok } else { place.complete(&completion, now_us) }]);
        }
    }
    // Nothing is remembered beside records in the table.
    model[key].sibling = None;
    Some(())
}

#[test]
fn the_table_does_what_the_state_machine_does() {
    arbtest::arbtest(|input| {
        let host = Host::new(1);
        let mut model = vec![Place::default(); 3];
        let mut now_us = NOW_US;
        for _ in 0..30 {
            now_us += input.int_in_range(1..=LEASE_US)?;
            if act(&host, &mut model, input, now_us).is_none() {
                break;
            }
        }
        Ok(())
    })
    .budget_ms(1_000);
}
