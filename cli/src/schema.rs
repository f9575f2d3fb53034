//! `lockkeeper schema`: the JSON Schema of policy files and plugin configurations, for editors.

/// The schema as it is in the documentation, where a test holds it against the loader.
pub const TEXT: &str = include_str!("../../docs/policy.schema.json");
