//! The known name that a misspelt one most likely stands for.

/// The known name that is nearest to `name`, if it is near: a letter that was swapped, left out, added or replaced, or
/// more of these in a longer name.
pub(crate) fn nearest<'t>(name: &str, known: impl IntoIterator<Item = &'t str>) -> Option<&'t str> {
    if name.len() > LONGEST {
        return None;
    }
    let known = known.into_iter().filter(|known| known.len() <= LONGEST).map(|known| (distance(name, known), known));
    let (distance, found) = known.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len() / 3).max(1)).then_some(found)
}

/// How many letters have to be swapped with a neighbour, left out, added or replaced to get from one name to the other.
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

/// Longer names are not compared, since that takes time for each pair of letters.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_original_and_another_word_none() {
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
