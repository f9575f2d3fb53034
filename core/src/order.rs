//! Sorting that exists once in the module: the standard sorts are compiled anew, several KiB each, for every type and
//! comparison.

use std::cmp::Ordering;

/// The indices of a list of `length` elements in order; of equals the first stays first.
pub fn indices(length: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|one, other| compare(*one, *other));
    order
}

/// The elements of a list in order; of equals the first stays first.
pub fn sorted<T: Ord>(elements: Vec<T>) -> Vec<T> {
    let order = indices(elements.len(), &|one, other| elements.get(one).cmp(&elements.get(other)));
    let mut elements: Vec<Option<T>> = elements.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| elements.get_mut(index)?.take()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_order_and_equal_ones_in_theirs() {
        assert_eq!(sorted(vec![3, 1, 2, 1]), [1, 1, 2, 3]);
        let words = ["bb", "a", "aa", "b"];
        assert_eq!(indices(words.len(), &|one, other| words[one].len().cmp(&words[other].len())), [1, 3, 0, 2]);
        assert!(sorted(Vec::<String>::new()).is_empty());
    }
}
