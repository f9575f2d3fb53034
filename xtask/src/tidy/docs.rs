//! The map of the code must not rot: every path that docs/ARCHITECTURE.md names exists.

use super::{Finding, Source};
use lockkeeper_tests::paths;

const MAP: &str = "docs/ARCHITECTURE.md";
/// What a code span ends with when it names a file.
const FILE_ENDINGS: [&str; 7] = [".json", ".lua", ".md", ".rs", ".toml", ".wasm", ".yaml"];

/// Checks the map.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(map) = sources.iter().find(|source| source.path == MAP) else {
        return vec![Finding::new(MAP, "is missing")];
    };
    let missing = |path: &&str| !paths::workspace().join(path).exists() && !is_built(path);
    named_paths(&map.text).filter(missing).map(|path| Finding::new(MAP, format!("`{path}` does not exist"))).collect()
}

/// Code spans that look like a path: a slash inside or at the end, or the ending of a file.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| {
        let plain =
            span.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte)) && !span.starts_with('/');
        plain && (span.contains('/') || FILE_ENDINGS.iter().any(|ending| span.ends_with(ending)))
    })
}

fn is_built(path: &str) -> bool {
    path.starts_with("target/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        check(&[Source { path: MAP.into(), text: text.into() }]).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_path_that_exists_is_fine_and_one_that_does_not_is_found() {
        assert_eq!(
            findings("`core/src/lib.rs`, `xtask/` and `Cargo.toml`; `target/tools`; `a / b`; `/ready`\n"),
            [""; 0]
        );
        assert_eq!(
            findings("see `core/src/gone.rs` and `gone/`\n"),
            ["`core/src/gone.rs` does not exist", "`gone/` does not exist"]
        );
    }

    #[test]
    fn a_missing_map_is_found() {
        assert_eq!(check(&[]).len(), 1);
    }
}
