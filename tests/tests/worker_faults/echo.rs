//! No reply reaches another request, however often the connection breaks: each says what it was asked.

use crate::world::{World, policy};
use lockkeeper_tests::http::Request;
use lockkeeper_tests::load::{self, Until};
use lockkeeper_tests::stub_store::{Act, Behaviour, StubStore};
use lockkeeper_tests::workerd::Transport;
use std::sync::Arc;
use std::time::Duration;

const REQUESTS: usize = 1_000;
/// The arguments of a script with one key: command, script, 1, key, tag, algorithm, enforced, cost.
const COST: usize = 7;

/// Admits with the cost as what remains; breaks off in about one of 40 replies, anywhere, and takes up to 3 ms.
fn echo() -> Behaviour {
    Arc::new(|command| {
        let cost = command.arguments.get(COST).map(|cost| String::from_utf8_lossy(cost).into_owned());
        let tag = String::from_utf8_lossy(command.tag()).into_owned();
        let reply = match cost {
            Some(cost) => format!("*5\r\n${}\r\n{tag}\r\n:1\r\n:{cost}\r\n:0\r\n:0\r\n", tag.len()),
            // A probe.
            None => format!("*1\r\n${}\r\n{tag}\r\n", tag.len()),
        };
        let drawn = command.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let wait = Act::Wait(Duration::from_millis(drawn % 4));
        let cut = usize::try_from(drawn).unwrap_or(0) % reply.len();
        match drawn % 40 {
            0 => vec![wait, Act::Send(reply.as_bytes()[..cut].to_vec()), Act::Close],
            _ => vec![wait, Act::Send(reply.into_bytes())],
        }
    })
}

#[test]
fn of_1000_requests_over_a_connection_cut_at_random_none_gets_anothers_reply() {
    for transport in Transport::ALL {
        let stub = StubStore::start(echo()).expect("a loopback port is free");
        let world = World::start(transport, stub.address(), &policy(100_000));
        let samples = load::run(world.workerd.address(), 16, Until::Requests(REQUESTS), |number| {
            let cost = (number + 1).to_string();
            Request::get("/deny").header("x-user", "one").header("x-cost", &cost).header("x-number", &cost)
        });
        let mut decided = 0;
        for sample in &samples {
            let answer = sample.answer.as_ref().expect("workerd answers");
            let Some(field) = answer.header("ratelimit") else {
                assert_eq!(answer.status, 503, "{answer:?}");
                continue;
            };
            let seen: serde_json::Value = serde_json::from_str(&answer.body).expect("the upstream echoes the request");
            let number = seen["headers"]["x-number"].as_str().expect("the number is there");
            assert!(
                field.contains(&format!(";r={number};")) || field.ends_with(&format!(";r={number}")),
                "{number}: {field}"
            );
            decided += 1;
        }
        println!("{transport:?}: {decided} of {REQUESTS} decided by the store over {} connections", stub.connections());
        assert!(decided > REQUESTS / 4, "{transport:?}: {decided}");
    }
}
