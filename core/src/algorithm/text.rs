//! The text of stored states: decimal numbers with colons between, exactly as the script reads and writes them.

use super::domain::EXACT_MAX;

/// `N` numbers, or nothing when the text is anything else: foreign text counts as an absent key.
pub(super) fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(':');
    for number in &mut numbers {
        *number = parts.next().and_then(exact_number)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn exact_number(digits: &str) -> Option<u64> {
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    (number <= EXACT_MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_decimal_numbers_are_read() {
        assert_eq!(numbers("0:9007199254740991"), Some([0, EXACT_MAX]));
        for foreign in
            ["", ":", "1", "1:2:3", "1:", "+1:2", "-1:2", "1 :2", "1.5:2", "1e3:2", "0x1:2", "1:9007199254740992"]
        {
            assert_eq!(numbers::<2>(foreign), None, "{foreign:?}");
        }
    }
}
