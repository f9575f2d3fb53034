//! How two routes stand to each other: which goes first, whether some request matches both, whether one leaves nothing to
//! the other.

use std::cmp::Ordering;

use super::{HeaderMatch, HostMatch, Route};

impl Route {
    /// Which of two routes goes first where both match; equal ones go in the order of the file.
    pub fn precedence(&self, other: &Route) -> Ordering {
        let named = self.route_name.is_none().cmp(&other.route_name.is_none());
        let hosts = self.host.kind().cmp(&other.host.kind());
        named.then(hosts).then_with(|| self.path.precedence(&other.path)).then_with(|| self.rank().cmp(&other.rank()))
    }

    /// Whether some request matches both.
    pub fn overlaps(&self, other: &Route) -> bool {
        let names = match (&self.route_name, &other.route_name) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        let some_method = |one: &Route, two: &Route| one.methods.iter().any(|method| two.matches_method(method));
        let methods = self.methods.is_empty() || some_method(self, other) || some_method(other, self);
        let differs = |one: &HeaderMatch, two: &HeaderMatch| {
            one.name == two.name && one.value.is_some() && two.value.is_some() && one.value != two.value
        };
        let headers = !self.headers.iter().any(|one| other.headers.iter().any(|two| differs(one, two)));
        names && methods && headers && self.host.overlaps(&other.host) && self.path.overlaps(&other.path)
    }

    /// Whether every request that matches `other` matches this route too.
    pub fn covers(&self, other: &Route) -> bool {
        let names = self.route_name.is_none() || self.route_name == other.route_name;
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|method| self.matches_method(method)));
        let implied = |wide: &HeaderMatch| {
            let mut narrow = other.headers.iter().filter(|narrow| narrow.name == wide.name);
            narrow.any(|narrow| wide.value.is_none() || wide.value == narrow.value)
        };
        names
            && methods
            && self.headers.iter().all(implied)
            && self.host.covers(&other.host)
            && self.path.covers(&other.path)
    }
}

impl HostMatch {
    /// Exact before suffix before any; long suffixes before short ones.
    fn kind(&self) -> impl Ord + use<> {
        match self {
            HostMatch::Exact(_) => (0_u8, 0),
            HostMatch::Suffix(suffix) => (1, usize::MAX.saturating_sub(suffix.len())),
            HostMatch::Any => (2, 0),
        }
    }

    fn overlaps(&self, other: &HostMatch) -> bool {
        self.covers(other) || other.covers(self)
    }

    fn covers(&self, other: &HostMatch) -> bool {
        match (self, other) {
            (HostMatch::Any, _) => true,
            (HostMatch::Exact(one), HostMatch::Exact(two)) => one == two,
            (HostMatch::Suffix(_), HostMatch::Exact(host)) => self.matches(host),
            (HostMatch::Suffix(wide), HostMatch::Suffix(narrow)) => narrow.ends_with(wide.as_str()),
            (HostMatch::Exact(_) | HostMatch::Suffix(_), HostMatch::Any)
            | (HostMatch::Exact(_), HostMatch::Suffix(_)) => false,
        }
    }
}
