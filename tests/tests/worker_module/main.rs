//! The limiter as JavaScript and TypeScript Workers import it, in real workerd: the example as wrangler bundles it, its
//! types, its errors, a module that panics, a limiter made before any request, and what requests hold until they are settled.

mod decisions;
mod holdings;
mod misuse;
mod options;
mod start;
mod world;
