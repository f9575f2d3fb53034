//! What a request costs: the same for all, or what a header says, within bounds that the policy sets.

use super::error::PolicyErrors;
use super::names::header_name;
use super::node::Node;
use super::numbers::UNITS_MAX;
use super::reader::Place;

/// Units that a request spends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for every request.
    Fixed(u64),
    /// What the header says, moved into the bounds.
    Header {
        /// Its lower-case name.
        name: String,
        /// For requests without it.
        default: u64,
        /// The least, at least 1.
        min: u64,
        /// The most, at most what the limit ever grants at once.
        max: u64,
    },
}

/// The header holds no whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNumber;

impl Cost {
    /// The most that a request can cost.
    pub fn max(&self) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Header { max, .. } => *max,
        }
    }

    /// What a request without a legible number costs.
    pub fn fallback(&self) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Header { default, .. } => *default,
        }
    }

    /// The header that says it, by its lower-case name.
    pub fn header(&self) -> Option<&str> {
        match self {
            Cost::Fixed(_) => None,
            Cost::Header { name, .. } => Some(name),
        }
    }

    /// The cost by the value of [`Cost::header`]; blank counts as missing, what is out of bounds as the nearer bound.
    ///
    /// # Errors
    /// When the value is anything but decimal digits.
    pub fn read(&self, value: Option<&[u8]>) -> Result<u64, NoNumber> {
        let Cost::Header { default, min, max, .. } = self else { return Ok(self.fallback()) };
        let digits = value.unwrap_or_default().trim_ascii();
        if digits.is_empty() {
            return Ok(*default);
        }
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(NoNumber);
        }
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
        Ok(number.max(*min).min(*max))
    }
}

/// Reads a cost; `allowance` is the most that the limit ever grants at once, when that is known.
pub(super) fn read(place: &Place<'_>, allowance: Option<u64>, errors: &mut PolicyErrors) -> Option<Cost> {
    let remark = if allowance.is_some() { ", the most that the limit ever grants at once" } else { "" };
    let most = allowance.unwrap_or(UNITS_MAX);
    if !matches!(place.node, Node::Object(_)) {
        return place.whole(errors, 1..=most, remark).map(Cost::Fixed);
    }
    let object = place.object(errors, "a cost")?;
    let expected = "a header such as \"x-cost\"";
    let name = object.required("header", errors, expected).and_then(|place| header_name(&place, expected, errors));
    let max = object
        .required("max", errors, "the most that a request may cost")
        .and_then(|place| place.whole(errors, 1..=most, remark));
    let bound = max.unwrap_or(most);
    let min = object.optional("min").map_or(Some(1), |place| place.whole(errors, 1..=bound, ", the max of this cost"));
    let least = min.unwrap_or(1);
    let default = match object.optional("default") {
        None => Some(least),
        Some(place) => place.whole(errors, least..=bound, ", the bounds of this cost"),
    };
    object.finish(errors, &["header", "default", "min", "max"]);
    Some(Cost::Header { name: name?, default: default?, min: min?, max: max? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_gives_the_cost_within_its_bounds() {
        let cost = Cost::Header { name: "x-cost".into(), default: 3, min: 2, max: 100 };
        assert_eq!(cost.read(None), Ok(3));
        let rows: [(&[u8], Result<u64, NoNumber>); 14] = [
            (b"", Ok(3)),
            (b"  ", Ok(3)),
            (b"5", Ok(5)),
            (b" 5 ", Ok(5)),
            (b"005", Ok(5)),
            (b"0", Ok(2)),
            (b"101", Ok(100)),
            (b"99999999999999999999999999", Ok(100)),
            (b"-1", Err(NoNumber)),
            (b"+1", Err(NoNumber)),
            (b"1.5", Err(NoNumber)),
            (b"1, 5", Err(NoNumber)),
            (b"1e9", Err(NoNumber)),
            (b"\xff", Err(NoNumber)),
        ];
        for (value, expected) in rows {
            assert_eq!(cost.read(Some(value)), expected, "{value:?}");
        }
        assert_eq!(Cost::Fixed(7).read(Some(b"9")), Ok(7));
    }
}
