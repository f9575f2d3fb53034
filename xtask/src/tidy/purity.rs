//! The core is pure: built for wasm with its whole engine in use, it imports nothing.

use super::{Finding, Source};
use crate::build::cargo;
use anyhow::{Context, Result, ensure};
use lockkeeper_tests::{paths, tools};
use wasmparser::{Parser, Payload};

/// Uses the engine, so that nothing of it is left out of the module.
const EXAMPLE: &str = "core/examples/purity.rs";
const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the example and looks at its imports.
pub fn check(sources: &[Source]) -> Result<Vec<Finding>> {
    if !sources.iter().any(|source| source.path == EXAMPLE) {
        return Ok(vec![Finding::new(EXAMPLE, "is missing: the purity of the core cannot be checked")]);
    }
    tools::wasm_target()?;
    let arguments = ["build", "--quiet", "--package", "lockkeeper-core", "--example", "purity", "--target", TARGET];
    ensure!(cargo().args(arguments).status()?.success(), "{EXAMPLE} does not build");
    let file = paths::target().join(TARGET).join("debug/examples/purity.wasm");
    let module = std::fs::read(&file).with_context(|| file.display().to_string())?;
    Ok(imports(&module)?
        .into_iter()
        .map(|import| Finding::new(EXAMPLE, format!("the core imports {import}")))
        .collect())
}

fn imports(module: &[u8]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(section) = payload? {
            for import in section {
                let import = import?;
                found.push(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_found() {
        // The smallest module that imports a function: one type, one import `e.f`.
        let module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x07\x01\x01e\x01f\0\0";
        assert_eq!(imports(module).expect("the module parses"), ["e.f"]);
        assert_eq!(imports(b"\0asm\x01\0\0\0").expect("the module parses"), [""; 0]);
    }
}
