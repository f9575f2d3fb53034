//! Path patterns: literal segments, parameters that take one segment, and everything below.

use std::cmp::Ordering;

use crate::normalize::segments;

/// One segment of a pattern. Literals go before parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This segment.
    Literal(String),
    /// Any one segment that is not empty, by the parameter's name.
    Parameter(String),
}

/// The path part of a match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMatch {
    /// The segments from the start, normalised.
    pub segments: Vec<Segment>,
    /// Whether everything below matches too.
    pub below: bool,
}

impl PathMatch {
    /// Any path.
    pub fn any() -> PathMatch {
        PathMatch { segments: Vec::new(), below: true }
    }

    /// Whether every path matches.
    pub fn is_any(&self) -> bool {
        self.below && self.segments.is_empty()
    }

    /// Whether a normalised path matches.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = segments(path);
        let fits = |segment: &Segment| rest.next().is_some_and(|found| segment.matches(found));
        self.segments.iter().all(fits) && (self.below || rest.next().is_none())
    }

    /// The segment that a parameter takes of a path that matches.
    pub fn parameter<'p>(&self, name: &str, path: &'p str) -> Option<&'p str> {
        let position = self.segments.iter().position(|segment| segment.parameter() == Some(name))?;
        segments(path).nth(position)
    }

    /// The names of the parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::parameter)
    }

    /// The path without parameters or wildcards, when it is one.
    pub fn exact(&self) -> Option<String> {
        let is_exact = !self.below && self.parameters().next().is_none();
        is_exact.then(|| self.text())
    }

    /// As policy files write it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => text.extend(["/", literal]),
                Segment::Parameter(name) => text.extend(["/{", name, "}"]),
            }
        }
        match self.below {
            true => text.push_str("/*"),
            false if text.is_empty() => text.push('/'),
            false => {}
        }
        text
    }

    /// The same text for all patterns that match the same paths: the names of parameters make no difference.
    pub fn shape(&self) -> String {
        let nameless = |segment: &Segment| match segment {
            Segment::Literal(_) => segment.clone(),
            Segment::Parameter(_) => Segment::Parameter(String::new()),
        };
        PathMatch { segments: self.segments.iter().map(nameless).collect(), below: self.below }.text()
    }

    /// Which of two patterns goes first where both match: by the first segment that differs from the left, literal
    /// before parameter before everything below.
    pub fn precedence(&self, other: &PathMatch) -> Ordering {
        let kind = |path: &PathMatch, position: usize| match path.segments.get(position) {
            Some(Segment::Literal(_)) => 0_u8,
            Some(Segment::Parameter(_)) => 1,
            None if path.below => 3,
            None => 2,
        };
        let length = self.segments.len().max(other.segments.len());
        let by_segment = (0..=length).map(|position| kind(self, position).cmp(&kind(other, position)));
        by_segment.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Whether some path matches both.
    pub fn overlaps(&self, other: &PathMatch) -> bool {
        let fits = |(one, two): (&Segment, &Segment)| match (one, two) {
            (Segment::Literal(one), Segment::Literal(two)) => one == two,
            (Segment::Literal(literal), Segment::Parameter(_)) | (Segment::Parameter(_), Segment::Literal(literal)) => {
                !literal.is_empty()
            }
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
        };
        let reaches = |one: &PathMatch, two: &PathMatch| two.below || one.segments.len() <= two.segments.len();
        self.segments.iter().zip(&other.segments).all(fits) && reaches(self, other) && reaches(other, self)
    }

    /// Whether every path that matches `other` matches this pattern too.
    pub fn covers(&self, other: &PathMatch) -> bool {
        let fits = |(wide, narrow): (&Segment, &Segment)| match (wide, narrow) {
            (Segment::Literal(one), Segment::Literal(two)) => one == two,
            (Segment::Literal(_), Segment::Parameter(_)) => false,
            (Segment::Parameter(_), Segment::Literal(literal)) => !literal.is_empty(),
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
        };
        let lengths = match self.below {
            true => self.segments.len() <= other.segments.len(),
            false => !other.below && self.segments.len() == other.segments.len(),
        };
        lengths && self.segments.iter().zip(&other.segments).all(fits)
    }
}

impl Segment {
    fn matches(&self, found: &str) -> bool {
        match self {
            Segment::Literal(literal) => literal == found,
            Segment::Parameter(_) => !found.is_empty(),
        }
    }

    fn parameter(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::Parameter(name) => Some(name),
        }
    }
}
