//! `lockkeeper unlock`: gives back the claims of a request whose holder will not, after showing them and asking.

use anyhow::Result;

use crate::Ending;
use crate::claims::{Claim, State, described};
use crate::inspect::{Target, confirmed};
use crate::store::{Cleared, Store};
use crate::style;

/// Whose claims to give back.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Only this claim, where the request has both
    #[arg(long, value_parser = ["idempotency", "lock"])]
    claim: Option<String>,
    /// Also forget what is done, so that a retry runs again; and what something else wrote
    #[arg(long)]
    forget: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Shows the claims, asks, and gives back those that are as they were shown.
///
/// # Errors
/// When the file cannot be read, the request is not written as one, the store fails, or there is nobody to ask.
pub fn run(options: &Options) -> Result<Ending> {
    let Some((mut store, held)) = options.target.held()? else { return Ok(Ending::Objections) };
    let wanted = |claim: &&Claim| options.claim.as_ref().is_none_or(|kind| kind == claim.kind);
    let claims: Vec<&Claim> = held.claims.iter().filter(wanted).collect();
    if claims.is_empty() {
        style::print("the request has no such claim\n");
        return Ok(Ending::Objections);
    }
    claims.iter().for_each(|claim| style::print(&described(claim)));
    let (cleared, kept): (Vec<&Claim>, Vec<&Claim>) =
        claims.into_iter().filter(|claim| claim.state != State::Free).partition(|claim| is_for(claim, options.forget));
    for claim in &kept {
        style::print(&format!("the {} claim stays: --forget is for what is done or corrupt\n", claim.kind));
    }
    if cleared.is_empty() {
        style::print("nothing was given back\n");
        return Ok(Ending::Objections);
    }
    if !options.yes && !confirmed(&question(&cleared), "--yes goes on without asking")? {
        style::print("nothing was given back\n");
        return Ok(Ending::Objections);
    }
    let all = clear(&cleared, &mut store)?;
    Ok(if all && kept.is_empty() { Ending::Success } else { Ending::Objections })
}

fn is_for(claim: &Claim, forget: bool) -> bool {
    match claim.state {
        State::Free => false,
        State::Running | State::Unknown => true,
        State::Done | State::Sealed | State::Corrupt => forget,
    }
}

fn question(claims: &[&Claim]) -> String {
    let has = |state: State| claims.iter().any(|claim| claim.state == state);
    let risk = match () {
        () if has(State::Running) => "The holder is alive: the next request runs at the same time. Give it back?",
        () if has(State::Unknown) => "It may have done its work: the next request does it again. Give it back?",
        () => "It is done: the next request does it again. Forget it?",
    };
    format!("{risk} [y/N] ")
}

/// True when all were as they were shown.
fn clear(claims: &[&Claim], store: &mut Store) -> Result<bool> {
    let mut all = true;
    for claim in claims {
        let cleared = match &claim.record {
            Some(record) if record.kept.is_none() => store.give_back(record.owner, claim)?,
            _ => store.forget(claim)?,
        };
        let text = match cleared {
            Cleared::Yes => "given back",
            Cleared::Changed => "not given back: it has changed meanwhile",
        };
        all &= cleared == Cleared::Yes;
        style::print(&format!("{}: {text}\n", claim.kind));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_tests::Redis;

    const POLICY: &str =
        r#"{ "version": 1, "default_policy": "p", "policies": { "p": { "lock": { "key": ["host"] } } } }"#;

    fn held(options: &Options) -> (Store, Claim) {
        let (store, mut held) = options.target.held().unwrap().unwrap();
        (store, held.claims.remove(0))
    }

    /// A record of a lock, as its script writes it.
    fn write(redis: &Redis, claim: &Claim, owner: char, fence: u64) {
        let mut hset = redis::cmd("HSET");
        hset.arg(&claim.store_key).arg(&[("v", "1"), ("s", "R"), ("p", ""), ("q", ""), ("pv", ""), ("n", "1")]);
        hset.arg(&[("o", owner.to_string().repeat(32)), ("f", fence.to_string()), ("d", "9000000".to_owned())]);
        hset.arg(&[("l", "9000000"), ("t", "1")]).query::<()>(&mut redis.connection()).unwrap();
    }

    #[test]
    fn a_claim_that_changed_hands_after_it_was_shown_stays() {
        let redis = Redis::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.json");
        std::fs::write(&file, POLICY).unwrap();
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let store = format!("redis://{}/", redis.address());
        let line = ["unlock", file.to_str().unwrap(), "--store", &store, "--url", "http://a.example/"];
        let options = <Line as clap::Parser>::parse_from(line).options;
        let (_, free) = held(&options);
        for (owner, fence) in [('b', 7), ('a', 8)] {
            write(&redis, &free, 'a', 7);
            let (mut store, shown) = held(&options);
            assert_eq!(shown.state, State::Unknown);
            write(&redis, &free, owner, fence);
            assert!(!clear(&[&shown], &mut store).unwrap(), "owner {owner}, fence {fence}");
            let (mut store, now) = held(&options);
            assert_eq!((now.state, now.fence), (State::Unknown, Some(fence)));
            assert!(clear(&[&now], &mut store).unwrap());
            assert_eq!(held(&options).1.state, State::Free);
        }
    }
}
