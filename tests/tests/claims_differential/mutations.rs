//! The comparison notices what it is for: each guard of the scripts, taken out, makes the traces differ.

use crate::random::Random;
use crate::scenery::NOW_US;
use crate::store::Mutation;
use crate::traces::{SEED, TRACES, trace};
use crate::world::World;

const fn of(from: &'static str, to: &'static str) -> Mutation {
    Mutation { from, to }
}

/// What every script reads of a record.
const READING: [Mutation; 17] = [
    of("if found.err then return false end", "if found.err then return nil end"),
    of("if found[1] ~= '1' or not (state", "if not (state"),
    of("#owner == 32 and ", ""),
    of("and match(owner, '^%x+$')", ""),
    of("match(state, '^[RDS]$')", "true"),
    of(
        "if not (fence and deadline and lease and head and body and recipe and attempt and started) then",
        "if not fence then",
    ),
    of("status and match(status, '^%d%d%d$') and headers", "status and headers"),
    of("if state == 'S' and not reason then return false end", ""),
    of("if state == 'D' and encoding ~= '' and encoding ~= 'base64' then return false end", ""),
    of("if state == 'D' and call('HEXISTS', key, 'b') == 0 then return false end", ""),
    of("local healed = deadline - now > lease", "local healed = false"),
    of("if healed then deadline = now + lease end", ""),
    of("return value and value <= EXACT_MAX and value or nil", "return value"),
    of("match(text, '^%d+$')", "match(text, '^[%de]+$')"),
    of("if not (fence and attempt) then return 0, 0 end", "fence, attempt = fence or 0, attempt or 0"),
    of("return fence <= now + FENCE_AHEAD_US and fence or 0, attempt", "return fence, attempt"),
    of("match(stored, '^(%d+):(%d+)$') end\n  fence, attempt", "match(stored, '(%d+):(%d+)') end\n  fence, attempt"),
];

/// What becomes of it.
const CHANGING: [Mutation; 12] = [
    of(
        "call('SET', key, format('%.0f:%.0f', fence, attempt), 'PX', ttl)",
        "call('SET', key, format('%.0f:%.0f', fence, attempt))",
    ),
    of("  call('PEXPIRE', key, ttl)\n  if record.deadline - now", "  if record.deadline - now"),
    of("if record.deadline - now < lease + 0 then", "if true then"),
    of("if record.deadline - now < lease + 0 then", "if false then"),
    of(
        "call('HSET', key, 'd', format('%.0f', now + lease), 'l', lease)",
        "call('HSET', key, 'd', format('%.0f', record.deadline + lease), 'l', lease)",
    ),
    of("if fence < record.fence then\n    remember", "if false then\n    remember"),
    of("attempt > record.attempt and attempt or record.attempt, ttl)\n  else", "attempt, ttl)\n  else"),
    of("    call('PEXPIRE', fence_key, ttl)\n", ""),
    of("record.owner ~= owner or fence", "fence"),
    of("fence ~= '' and fence + 0 ~= record.fence", "false"),
    of("return record.state == 'R' and 'ok' or 'done'", "return 'ok'"),
    of("if record == false then return 'corrupt' end", "if record == false then return 'gone' end"),
];

const ADMITTING: [Mutation; 30] = [
    of("if record.recipe ~= recipe then return false end", ""),
    of("record.head ~= head or ", ""),
    of(" or record.body ~= body and record.body ~= '' and body ~= ''", ""),
    of(" and record.body ~= ''", ""),
    of(" and body ~= ''", ""),
    of("call('HGET', key, 'b')", "''"),
    of("or record and is_lock and record.state ~= 'R' then", "then"),
    of("record.state == 'R' and record.owner == argv[at + 1]", "record.owner == argv[at + 1]"),
    of("record.state == 'R' and record.owner == argv[at + 1]", "false"),
    of("if not is_lock and differs", "if false and differs"),
    of("elseif rest > 0 then", "elseif rest >= 0 then"),
    of("elseif rest > 0 then", "elseif false then"),
    of("if record.healed then pcall('HSET', key, 'd', format('%.0f', record.deadline)) end", ""),
    of("elseif not is_lock and argv[at + 7] ~= 'retry' then", "elseif argv[at + 7] ~= 'retry' then"),
    of("elseif not is_lock and argv[at + 7] ~= 'retry' then", "elseif false then"),
    of("    break\n  end\nend\n\nif charges_replay", "  end\nend\n\nif charges_replay"),
    of("charges_replay = not is_lock and word", "charges_replay = word"),
    of(" and word ~= 'corrupt' and replay_limits", " and replay_limits"),
    of("elseif outcome or again then", "elseif outcome then"),
    of("elseif outcome or again then", "elseif again then"),
    of("if last >= fence then fence = last + 1 end", ""),
    of("if last >= fence then fence = last + 1 end", "if last > fence then fence = last + 1 end"),
    of("and lower >= fence then", "and lower > fence then"),
    of("if lower <= now + FENCE_AHEAD_US and", "if"),
    of("if record.fence > last and record.fence <= now + FENCE_AHEAD_US then last = record.fence end", ""),
    of("if record.fence > last and record.fence <= now + FENCE_AHEAD_US then", "if record.fence > last then"),
    of("if record.attempt > attempt then attempt = record.attempt end", ""),
    of(
        "  call('PEXPIRE', key, ttl)\n  remember(fence_key, fence, attempt, ttl)\n  return",
        "  remember(fence_key, fence, attempt, ttl)\n  return",
    ),
    of("  remember(fence_key, fence, attempt, ttl)\n  return", "  return"),
    of("if not allowed then outcome = { ARGV[1], 'limited' } end", ""),
];

const TAKING: [Mutation; 3] = [
    of("elseif not allowed then\n  outcome = { ARGV[1], 'denied' }", "elseif false then\n  outcome = nil"),
    of(
        "if record and record.owner == owner then\n    extend(key, fence_key, record, lease, ttl)",
        "if record and record.owner == owner then",
    ),
    of("if record and record.owner == owner then\n    extend", "if false then\n    extend"),
];

const ENDING: [Mutation; 15] = [
    of("if word == 'corrupt' then return { ARGV[1], word } end", ""),
    of("if word == 'done' then return { ARGV[1], 'ok' } end", ""),
    of("if word == 'lost' or word == 'gone' and last > fence", "if word == 'gone' and last > fence"),
    of("word == 'gone' and last > fence then", "false then"),
    of("word == 'gone' and last > fence then", "word == 'gone' and last >= fence then"),
    of("word == 'gone' and last > fence then", "word == 'gone' then"),
    of("if record and body == '' then body = record.body end", ""),
    of("attempt = ARGV[14] + 0, started", "attempt = 1, started"),
    of("call('PEXPIRE', key, ttl)\nremember(", "remember("),
    of("remember(fence_key, fence > last and fence or last, record", "remember(fence_key, fence, record"),
    of("record.attempt > attempt and record.attempt or attempt, ttl)\nreturn", "attempt, ttl)\nreturn"),
    of("if record_expires > expires then expires = record_expires end", ""),
    of("if expires < 0 then expires = DAY_MS end", "if expires < 0 then expires = 1000 end"),
    of("record.fence > last and record.fence or last\n  local counted", "last\n  local counted"),
    of(" - uncounted\n", "\n"),
];

const GIVING_BACK: [Mutation; 6] = [
    of("counted < 0 and 0 or counted", "counted"),
    of("  call('DEL', key)\n  remember", "  remember"),
    of("if word == 'ok' then delete", "if record then delete"),
    of("removed == 1 and 'ok' or 'gone'", "'ok'"),
    of("if word == 'ok' then extend", "if record then extend"),
    of("call('ZADD', key, format('%.0f', now + ARGV[at + 1]), ARGV[at])", ""),
];

const SLOTS: [Mutation; 12] = [
    of("pcall('ZCOUNT', key, format('(%.0f', now), '+inf')", "pcall('ZCARD', key)"),
    of("mine = deadline and deadline + 0 > now", "mine = deadline"),
    of("admitted = mine or used < limit", "admitted = used < limit"),
    of("admitted = mine or used < limit", "admitted = mine or used <= limit"),
    of("for one = 1, #ahead do call('ZADD', key, format('%.0f', latest), ahead[one]) end", ""),
    of("call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', now))", ""),
    of("if not mine then used = used + 1 end", "used = used + 1"),
    of("if foreign then\n            call('SET', key, '')\n            call('DEL', key)", "if foreign then"),
    of(
        "if not admitted then retry = reset < 1000000 and reset or 1000000 end",
        "if not admitted then retry = reset end",
    ),
    of(
        "call('ZRANGEBYSCORE', key, format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')",
        "call('ZRANGE', key, '0', '0', 'WITHSCORES')",
    ),
    of("reset, fresh = earliest[2] - now, newest[2] + 0", "reset, fresh = earliest[2] - now, earliest[2] + 0"),
    of("call('ZADD', key, format('%.0f', latest), owner)", "call('ZADD', key, 'NX', format('%.0f', latest), owner)"),
];

#[test]
fn every_guard_that_is_taken_out_is_noticed() {
    let mut world = World::new(NOW_US);
    let all = [&READING[..], &CHANGING, &ADMITTING, &TAKING, &ENDING, &GIVING_BACK, &SLOTS].concat();
    let unnoticed: Vec<Mutation> = all.into_iter().filter(|mutation| !notices(&mut world, *mutation)).collect();
    assert_eq!(unnoticed.len(), 0, "nothing differs with {unnoticed:#?}");
}

fn notices(world: &mut World, mutation: Mutation) -> bool {
    world.store.load(Some(mutation));
    let mut random = Random::new(SEED);
    (0..TRACES).any(|_| trace(world, &mut random).is_err())
}
