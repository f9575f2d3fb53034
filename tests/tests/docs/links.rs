//! Links inside the documentation lead somewhere.

use std::path::Path;

use lockkeeper_tests::paths;

use crate::markdown::{Page, is_heading, page, pages};

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for from in pages() {
        let prose = from.prose().join("\n");
        for target in targets(&prose).filter(|target| !target.contains("://")) {
            check(&from, target);
        }
    }
}

/// What stands in the parentheses of `[text](target)`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

fn check(from: &Page, target: &str) {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(&from.path).parent().expect("a page lies in a folder");
    let path = if file.is_empty() { from.path.clone() } else { clean(&folder.join(file)) };
    assert!(paths::workspace().join(&path).exists(), "{} links to {target}, and {path} does not exist", from.path);
    if !anchor.is_empty() {
        let headings: Vec<String> = page(&path).prose().iter().filter(|line| is_heading(line)).map(slug).collect();
        assert!(headings.iter().any(|slug| slug == anchor), "{} links to {target}: no such heading", from.path);
    }
}

/// Resolves `..`.
fn clean(path: &Path) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.to_str().expect("UTF-8").split('/') {
        match part {
            ".." => drop(kept.pop()),
            "" | "." => {}
            part => kept.push(part),
        }
    }
    kept.join("/")
}

/// The anchor that hosting sites give a heading.
fn slug(heading: &&str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}
