//! Claims through real Envoys while things fail: gateways that die, proxies that retry, stores that refuse, leases that lapse.

mod begin;
mod completion;
mod dispatch;
mod history;
mod host;
mod kill;
mod leases;
mod parallel;
mod refusals;
mod retries;
mod slots;
mod world;
