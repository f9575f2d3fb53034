//! The Worker in real workerd while its store is lost, hangs, lies or breaks off: the policy's answer, in time, each time.

mod echo;
mod store;
mod world;
