//! Words that do not belong in the repository: places of one machine, hosts of package registries, notes to self.

use super::{Finding, Source};

/// In pieces, so that this file passes its own check.
const FORBIDDEN: [(&str, &str, &str); 11] = [
    ("/ro", "ot/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
    ("/wo", "rk/", "a path of one machine"),
    ("/tm", "p/", "a path of one machine: use a temporary directory"),
    ("crates", ".io", "the host of a package registry"),
    ("py", "pi.org", "the host of a package registry"),
    ("npm", "js.org", "the host of a package registry"),
    ("npm", "js.com", "the host of a package registry"),
    ("deb.", "debian.org", "the host of a package registry"),
    ("TO", "DO", "a note to self: do it, or write an issue"),
    ("FIX", "ME", "a note to self: do it, or write an issue"),
];

/// Checks every file but the lock file, which cargo writes.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().filter(|source| source.path != "Cargo.lock").flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate();
    let found = lines.flat_map(|(number, line)| {
        let words = FORBIDDEN.iter().filter(move |(start, end, _)| line.contains(&format!("{start}{end}")));
        words.map(move |(start, end, why)| {
            Finding::new(format!("{}:{}", source.path, number + 1), format!("`{start}{end}` is {why}"))
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_forbidden_word_is_found_with_its_line() {
        for (start, end, why) in FORBIDDEN {
            let text = format!("fine\nx {start}{end} y\n");
            let findings = check(&[Source { path: "README.md".into(), text }]);
            assert_eq!(findings.len(), 1, "{start}{end}");
            assert_eq!(findings[0].place, "README.md:2");
            assert!(findings[0].rule.ends_with(why));
        }
    }
}
