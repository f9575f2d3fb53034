//! Claims through real Envoys while things fail: gateways that die, proxies that retry, stores that refuse, leases that lapse.

mod dispatch;
mod kill;
mod parallel;
mod retries;
mod world;
