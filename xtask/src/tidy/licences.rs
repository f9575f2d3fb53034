//! The licences of all dependencies, against a list of those we accept.

use super::Finding;
use crate::build::cargo;
use anyhow::{Result, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};

/// Permissive licences, and no exception but LLVM's.
const ACCEPTED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks every package of the lock file.
pub fn check() -> Result<Vec<Finding>> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages
        .filter_map(|package| check_package(package["name"].as_str().unwrap_or("?"), package["license"].as_str()))
        .collect())
}

fn check_package(name: &str, license: Option<&str>) -> Option<Finding> {
    let place = format!("dependency {name}");
    let Some(license) = license else { return Some(Finding::new(place, "names no licence")) };
    match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) if expression.evaluate(accepted) => None,
        Ok(_) => Some(Finding::new(place, format!("its licence, {license}, is not on the list of those accepted"))),
        Err(error) => Some(Finding::new(place, format!("its licence cannot be read: {error}"))),
    }
}

fn accepted(requirement: &spdx::LicenseReq) -> bool {
    requirement.license.id().is_some_and(|id| ACCEPTED.contains(&id.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_accepted_choice_is_enough() {
        assert!(check_package("a", Some("GPL-3.0-only OR MIT")).is_none());
        assert!(check_package("a", Some("MIT/Apache-2.0")).is_none());
        assert!(check_package("a", Some("Apache-2.0 WITH LLVM-exception")).is_none());
    }

    #[test]
    fn everything_else_is_found() {
        for license in [Some("GPL-3.0-only"), Some("MIT AND GPL-3.0-only"), Some("no licence"), None] {
            assert!(check_package("a", license).is_some(), "{license:?}");
        }
    }
}
