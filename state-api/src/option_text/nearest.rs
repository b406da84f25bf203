/// Longest word that is compared letter by letter; the work grows with the square.
const LONGEST: usize = 128;

/// Finds the valid word that a wrong one most likely stands for; `None` when nothing is near.
///
/// A word that is the end of a valid one, or ends in one, counts as near: people leave out or add a prefix.
#[must_use]
pub fn of<'a>(wrong: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    valid
        .map(|word| (distance(&wrong, &word.to_lowercase()), word))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, word)| *distance <= (wrong.len().max(word.len()) / 3).max(2))
        .map(|(_, word)| word)
}

/// Counts the letters to insert, delete, replace or swap between neighbours to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    if has_tail(a, b) || has_tail(b, a) {
        return 1;
    }
    let a: Vec<char> = a.chars().take(LONGEST).collect();
    let b: Vec<char> = b.chars().take(LONGEST).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(x != y))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

fn has_tail(long: &str, tail: &str) -> bool {
    long.strip_suffix(tail)
        .is_some_and(|head| head.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_by_letters_swaps_and_tails() {
        let valid = [
            "execution.checkpointing.interval",
            "execution.checkpointing.timeout",
            "state.backend.type",
        ];
        let near = |wrong| of(wrong, valid.into_iter());
        assert_eq!(near("execution.checkpointing.intervall"), Some(valid[0]));
        assert_eq!(near("execution.chekcpointing.timeout"), Some(valid[1]));
        assert_eq!(near("checkpointing.interval"), Some(valid[0]));
        assert_eq!(near("STATE.BACKEND.TYPE"), Some(valid[2]));
        assert_eq!(near("entirely.different"), None);
    }

    #[test]
    fn the_distance_counts_edits_and_swaps() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
        let long = "x".repeat(100_000);
        assert_eq!(distance(&long, ""), LONGEST);
    }
}
