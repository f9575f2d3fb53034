//! Rules for Rust files: what each opens with, how long a function may be, and who may call the host.

use super::{Finding, Source};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FUNCTION_LINES_MAX: usize = 70;
/// The one file that calls Envoy.
const HOST_FILE: &str = "filter/src/host.rs";
/// Spellings that reach the host without the SDK's callbacks.
const HOST_CALLS: [&str; 6] =
    ["hostcalls", "wasi_snapshot_preview1", "extern \"C\"", "random_get", "clock_time_get", "environ_get"];

/// Checks every Rust file.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().filter(|source| source.path.ends_with(".rs")).flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !source.text.starts_with("//! ") {
        findings.push(Finding::new(&source.path, "opens with a `//!` line that says what it is and why"));
    }
    match syn::parse_file(&source.text) {
        Ok(file) => Lengths { path: &source.path, findings: &mut findings }.visit_file(&file),
        Err(error) => findings.push(Finding::new(&source.path, format!("does not parse: {error}"))),
    }
    if source.path.starts_with("filter/src/") && source.path != HOST_FILE {
        findings.extend(host_calls(source));
    }
    findings
}

fn host_calls(source: &Source) -> impl Iterator<Item = Finding> {
    let lines = source.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.flat_map(move |(number, line)| {
        let named = HOST_CALLS.iter().filter(move |call| line.contains(**call));
        named.map(move |call| {
            Finding::new(format!("{}:{}", source.path, number + 1), format!("`{call}` belongs to {HOST_FILE}"))
        })
    })
}

struct Lengths<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Lengths<'_> {
    fn check(&mut self, name: &syn::Ident, whole: proc_macro2::Span, body: &syn::Block) {
        let lines = body.span().end().line - name.span().start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            let place = format!("{}:{}", self.path, whole.start().line);
            self.findings.push(Finding::new(
                place,
                format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed"),
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Lengths<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig.ident, item.span(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig.ident, item.span(), &item.block);
        visit::visit_impl_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let source = Source { path: path.into(), text: text.into() };
        check(&[source]).into_iter().map(|finding| format!("{}: {}", finding.place, finding.rule)).collect()
    }

    #[test]
    fn a_short_file_with_a_header_is_fine() {
        assert_eq!(findings("core/src/a.rs", "//! What it is.\nfn a() {}\n"), [""; 0]);
    }

    #[test]
    fn a_missing_header_is_found() {
        assert_eq!(
            findings("core/src/a.rs", "fn a() {}\n"),
            ["core/src/a.rs: opens with a `//!` line that says what it is and why"]
        );
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let function = |lines: usize| format!("//! A.\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2));
        assert_eq!(findings("a.rs", &function(70)), [""; 0]);
        assert_eq!(findings("a.rs", &function(71)), ["a.rs:2: `long` has 71 lines, at most 70 are allowed"]);
    }

    #[test]
    fn host_calls_outside_their_file_are_found() {
        let text = "//! A.\nuse proxy_wasm::hostcalls;\n// hostcalls in a comment\n";
        assert_eq!(
            findings("filter/src/http.rs", text),
            ["filter/src/http.rs:2: `hostcalls` belongs to filter/src/host.rs"]
        );
        assert_eq!(findings("filter/src/host.rs", text), [""; 0]);
    }
}
