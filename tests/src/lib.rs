//! The harness that starts real servers on loopback.
