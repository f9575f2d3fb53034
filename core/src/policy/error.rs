//! What is wrong with a policy file: every fault at once, each with its place, what was found and what was expected.

use std::fmt;

/// One fault of a policy file or of the host configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// Where: a JSON path such as `$.policies.login.limits[0].refill`.
    pub path: String,
    /// What stands there.
    pub found: String,
    /// What should stand there.
    pub expected: String,
    /// What of the member or item at `path` is meant.
    pub spot: Spot,
}

/// What of a member of an object, or of an item of a list, is at fault: tools point there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Its name.
    Name,
    /// Its name where it stands once more.
    RepeatedName,
    /// Its value, or the lack of it.
    Value,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: found {}, expected {}", self.path, self.found, self.expected)
    }
}

/// All faults of one file, in the order in which its parts are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyErrors(pub Vec<PolicyError>);

impl PolicyErrors {
    /// Notes one more fault.
    #[inline(never)]
    pub fn push(&mut self, path: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.push_at(Spot::Value, path, found, expected);
    }

    /// Notes one more fault that is not of a value.
    #[inline(never)]
    pub fn push_at(&mut self, spot: Spot, path: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.0.push(PolicyError { path: path.to_owned(), found: found.into(), expected: expected.into(), spot });
    }

    /// `Ok(value)` when no fault was noted.
    pub fn or<T>(self, value: Option<T>) -> Result<T, PolicyErrors> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                formatter.write_str("\n")?;
            }
            error.fmt(formatter)?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}
