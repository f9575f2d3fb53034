//! What the demo prints: where everything is and what to try.

use super::Demo;
use lockkeeper_tests::{paths, tools};
use std::fs;

/// Prints the addresses, the policy and the commands to try.
pub fn print(demo: &Demo) {
    let policy = fs::read_to_string(paths::workspace().join("envoy/policy.json")).unwrap_or_default();
    let (base, admin) =
        (format!("http://{}", demo.envoy.address()), format!("http://{}", demo.envoy.admin().address()));
    println!("\npolicy (envoy/policy.json)\n{policy}");
    println!("Envoy {}    {base}    (config: envoy/envoy.yaml with free ports)", tools::ENVOY_VERSION);
    println!("admin           {admin}");
    println!("upstream        http://{}", demo.upstream.address());
    match &demo.redis {
        Some(redis) => println!("Redis           {} (pid {})", redis.address(), redis.pid()),
        None => {
            println!("Redis           none: Envoy limits by itself, and policies that deny without a store answer 503")
        }
    }
    println!("\ntry");
    for (command, what) in to_try(demo, &base, &admin) {
        println!("  # {what}\n  {command}");
    }
    println!("\nCtrl-C ends everything.");
}

fn to_try(demo: &Demo, base: &str, admin: &str) -> Vec<(String, &'static str)> {
    let mut commands = vec![
        (format!("curl -i {base}/hello"), "policy api: five at once, then one a second; the sixth is a 429"),
        (format!("curl -i -X POST -H 'x-user: ada' {base}/v1/login"), "policy login: three a minute for each user"),
        (
            format!(
                "curl -i -H 'authorization: Bearer demo' -H 'idempotency-key: k-2' -d '{{\"amount\":1}}' {base}/v1/payments"
            ),
            "policy payments: a key runs once; the second answer is a replay, another body gets 422",
        ),
        (format!("curl -s {admin}/stats/prometheus | grep ^lockkeeper_"), "what was decided, by policy and limit"),
    ];
    if let Some(redis) = &demo.redis {
        let (pid, port) = (redis.pid(), redis.address().port());
        commands.extend([
            (format!("redis-cli -p {port} --scan"), "the keys in Redis; each has a TTL"),
            (
                format!("kill -STOP {pid}"),
                "Redis hangs: no request waits longer than 50 ms, then Envoy limits by itself",
            ),
            (format!("kill -CONT {pid}"), "Redis is back: within two seconds it decides again"),
        ]);
    }
    commands
}
