//! The form of a transcript: a title; `policy` and the file; then requests (`>`, content after `>>`) with their expected answers
//! (`<`), and `after 10s` between them. `< !name` expects that a field is absent; lines with `#` are comments.

use lockkeeper_tests::http;
use serde_json::Value;
use std::iter::Peekable;
use std::path::Path;
use std::str::Lines;

pub struct Transcript {
    /// The file's name without its ending.
    pub name: String,
    pub policy: Value,
    pub steps: Vec<Step>,
}

pub enum Step {
    /// Time passes, in microseconds.
    After(u64),
    Request(Request, Expected),
}

#[derive(Debug)]
pub struct Request {
    pub method: String,
    pub target: String,
    /// In their order; names in lower case.
    pub headers: Vec<(String, String)>,
    pub content: String,
}

pub struct Expected {
    /// Where the request begins.
    pub line: usize,
    status: u16,
    /// `None`: the field is absent.
    headers: Vec<(String, Option<String>)>,
}

/// What a subject answered.
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

type Numbered<'t> = Peekable<std::iter::Enumerate<Lines<'t>>>;

impl Transcript {
    /// Panics with the place of what cannot be read.
    pub fn read(file: &Path) -> Transcript {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let mut lines = text.lines().enumerate().peekable();
        assert!(lines.any(|(_, line)| line == "policy"), "{name}: no policy");
        let policy: Vec<&str> =
            std::iter::from_fn(|| lines.next_if(|(_, line)| !line.is_empty())).map(|it| it.1).collect();
        let policy =
            serde_json::from_str(&policy.join("\n")).unwrap_or_else(|error| panic!("{name}: the policy: {error}"));
        let mut steps = Vec::new();
        while let Some((number, line)) = lines.next() {
            match line.split_once(' ') {
                _ if line.is_empty() || line.starts_with('#') => {}
                Some(("after", time)) => steps.push(Step::After(micros(time))),
                Some((">", first)) => steps.push(exchange(number + 1, first, &mut lines)),
                _ => panic!("{name}:{}: {line}", number + 1),
            }
        }
        Transcript { name, policy, steps }
    }
}

fn exchange(line: usize, first: &str, lines: &mut Numbered<'_>) -> Step {
    let (method, target) = first.split_once(' ').unwrap_or_else(|| panic!("line {line}: a method and a target"));
    let mut of = |mark: &str| -> Vec<String> {
        let marked = std::iter::from_fn(|| lines.next_if(|(_, line)| line.starts_with(mark)));
        marked.map(|(_, line)| line[mark.len()..].to_owned()).collect()
    };
    let headers = of("> ").iter().map(|header| field(header)).collect();
    let content = of(">> ").join("\n");
    let expected = of("< ");
    let (status, fields) = expected.split_first().unwrap_or_else(|| panic!("line {line}: no answer"));
    let fields = fields.iter().map(|header| match header.strip_prefix('!') {
        Some(absent) => (absent.to_owned(), None),
        None => {
            let (name, value) = field(header);
            (name, Some(value))
        }
    });
    let status = status.parse().unwrap_or_else(|_| panic!("line {line}: a status"));
    let expected = Expected { line, status, headers: fields.collect() };
    Step::Request(Request { method: method.to_owned(), target: target.to_owned(), headers, content }, expected)
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("a header: {line}"));
    (name.to_owned(), value.to_owned())
}

fn micros(time: &str) -> u64 {
    let unit = time.find(|character: char| !character.is_ascii_digit()).unwrap_or_else(|| panic!("a unit: {time}"));
    let us = match &time[unit..] {
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        other => panic!("the unit {other} of {time}"),
    };
    time[..unit].parse::<u64>().unwrap_or_else(|_| panic!("a time: {time}")) * us
}

impl Request {
    /// The same for a server.
    pub fn http(&self) -> http::Request {
        let request = http::Request::new(&self.method, &self.target);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(self.content.as_str())
    }

    /// The lines of a header, joined.
    pub fn header(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> =
            self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    }
}

impl Expected {
    pub fn differences(&self, answer: &Answer) -> impl Iterator<Item = String> {
        let status = (answer.status != self.status)
            .then(|| format!("status {}, expected {}; {:?}", answer.status, self.status, answer.headers));
        let fields = self.headers.iter().filter_map(|(name, expected)| {
            let values: Vec<&str> =
                answer.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
            let seen = (!values.is_empty()).then(|| values.join(", "));
            (seen != *expected).then(|| format!("{name} {seen:?}, expected {expected:?}"))
        });
        status.into_iter().chain(fields)
    }
}
