//! As much of Markdown as the documentation uses: fenced blocks, sections, tables and code spans.

use lockkeeper_tests::paths;

/// One page of the documentation.
pub struct Page {
    /// From the root of the workspace, with `/`.
    pub path: String,
    pub text: String,
}

/// One fenced block.
pub struct Fence {
    /// Page and line, for messages.
    pub place: String,
    /// What stands behind the opening fence.
    pub info: String,
    pub text: String,
}

/// README.md and every page of docs/.
pub fn pages() -> Vec<Page> {
    let listed = std::fs::read_dir(paths::workspace().join("docs")).expect("docs/ can be read");
    let names = listed.map(|entry| entry.expect("docs/ can be read").file_name().into_string().expect("UTF-8"));
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".into());
    pages.sort();
    pages.iter().map(|path| page(path)).collect()
}

/// The page at `path`.
pub fn page(path: &str) -> Page {
    Page { path: path.to_owned(), text: workspace_file(path) }
}

/// A text file of the workspace.
pub fn workspace_file(path: &str) -> String {
    std::fs::read_to_string(paths::workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Page {
    /// Its fenced blocks, in order.
    pub fn fences(&self) -> Vec<Fence> {
        let mut fences: Vec<Fence> = Vec::new();
        let mut is_open = false;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), is_open) {
                (Some(info), false) => {
                    let place = format!("{}:{}", self.path, number + 1);
                    fences.push(Fence { place, info: info.to_owned(), text: String::new() });
                    is_open = true;
                }
                (Some(_), true) => is_open = false,
                (None, true) => fences.last_mut().expect("an open fence").text += &format!("{line}\n"),
                (None, false) => {}
            }
        }
        assert!(!is_open, "{}: a fence is not closed", self.path);
        fences
    }

    /// The lines that are not in a fenced block.
    pub fn prose(&self) -> Vec<&str> {
        let mut is_open = false;
        let prose = self.text.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            is_open ^= is_fence;
            !is_open && !is_fence
        });
        prose.collect()
    }

    /// The rows of the tables under the heading `title`, without their heads.
    pub fn rows(&self, title: &str) -> Vec<Vec<&str>> {
        let lines = self.prose();
        let start = lines.iter().position(|line| is_heading(line) && line.trim_start_matches('#').trim() == title);
        let start = start.unwrap_or_else(|| panic!("{} has no section {title:?}", self.path));
        let section = lines[start + 1..].iter().take_while(|line| !is_heading(line));
        let tables: Vec<Vec<&str>> = section.map(|line| cells(line)).collect();
        let is_rule = |row: &[&str]| row.first().is_some_and(|cell| cell.starts_with("---"));
        let mut rows = Vec::new();
        for (index, row) in tables.iter().enumerate() {
            let is_head = tables.get(index + 1).is_some_and(|next| is_rule(next));
            if !row.is_empty() && !is_head && !is_rule(row) {
                rows.push(row.clone());
            }
        }
        assert!(!rows.is_empty(), "{}: section {title:?} has no table", self.path);
        rows
    }
}

/// Whether a line is a heading.
pub fn is_heading(line: &str) -> bool {
    line.starts_with('#')
}

fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|'));
    inner.map(|inner| inner.split('|').map(str::trim).collect()).unwrap_or_default()
}

/// The code spans of a text.
pub fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The only code span of a table's cell.
pub fn only_code(cell: &str) -> &str {
    let mut spans = code_spans(cell);
    match (spans.next(), spans.next()) {
        (Some(span), None) => span,
        _ => panic!("{cell:?} is not one code span"),
    }
}
