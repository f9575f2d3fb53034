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
    println!("  curl -i {base}/hello                                # policy api: five at once, the sixth is a 429");
    println!("  curl -i -X POST -H 'x-user: ada' {base}/v1/login    # policy login: three a minute for each user");
    println!("  curl -s {admin}/stats/prometheus | grep ^lockkeeper_");
    if let Some(redis) = &demo.redis {
        let (pid, port) = (redis.pid(), redis.address().port());
        println!("  redis-cli -p {port} --scan                          # the keys; each has a TTL");
        println!(
            "  kill -STOP {pid}                                     # Redis hangs: no request waits longer than 50 ms"
        );
        println!("  kill -CONT {pid}                                     # and is back");
    }
    println!("\nCtrl-C ends everything.");
}
