//! Rate limits at the HTTP edge, as values in and values out.

pub mod algorithm;
pub mod local;
pub mod script;
