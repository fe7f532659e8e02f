//! Suggestions for misspelled names.

/// Returns the known name nearest to `name`, if their edit distance is at most `max(1, name.len() / 3)`.
pub(crate) fn nearest<'t>(name: &str, known: impl IntoIterator<Item = &'t str>) -> Option<&'t str> {
    if name.len() > MAX_NAME_LEN {
        return None;
    }
    let known =
        known.into_iter().filter(|known| known.len() <= MAX_NAME_LEN).map(|known| (distance(name, known), known));
    let (distance, found) = known.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len() / 3).max(1)).then_some(found)
}

/// Returns the [nearest] known name as a suggestion to append to an error message, or an empty string.
pub(crate) fn suggestion<'t>(name: &str, known: impl IntoIterator<Item = &'t str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!(" (did you mean {near:?}?)"))
}

/// Returns the edit distance: the number of letters added, omitted, replaced or swapped with the next letter.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let (mut before, mut last) = (Vec::new(), (0..=other.len()).collect::<Vec<_>>());
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let mut least = (last[j] + usize::from(letter != wanted)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *wanted {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        (before, last) = (last, row);
    }
    last[other.len()]
}

/// Longer names are not compared, because the time for a comparison grows with the square of the length.
const MAX_NAME_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let tiers = ["free", "premium", "enterprise"];
        for (name, found) in [
            ("premuim", Some("premium")),
            ("Premium", Some("premium")),
            ("premium ", Some("premium")),
            ("fre", Some("free")),
            ("enterprize", Some("enterprise")),
            ("gold", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, tiers), found, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(65), ["x"]), None);
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("kitten", "sitting")), (1, 3, 3));
    }
}
