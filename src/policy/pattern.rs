//! Text patterns with wildcards, such as `*bot*`.

/// A pattern in which each `*` matches any text. ASCII case is ignored. Matching never backtracks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    text: String,
    exact: bool,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Pattern {
        Pattern { text: text.to_ascii_lowercase(), exact: !text.contains('*') }
    }

    /// Creates a pattern in which `*` matches only itself, for text that callers send.
    pub(crate) fn exactly(text: &str) -> Pattern {
        Pattern { text: text.to_ascii_lowercase(), exact: true }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    pub(crate) fn inner(&self) -> Option<&str> {
        let inner = self.text.strip_prefix('*')?.strip_suffix('*')?.trim_matches('*');
        (!self.exact && !inner.is_empty() && !inner.contains('*')).then_some(inner)
    }

    /// Returns whether the pattern has text between two wildcards but is not of the form `*text*`.
    #[cfg(feature = "serde")]
    pub(crate) fn is_searched_alone(&self) -> bool {
        let is_gap = |gap: &str| gap.trim_matches('*').is_empty();
        let middle = self.text.split_once('*').and_then(|(_, rest)| rest.rsplit_once('*'));
        !self.exact && self.inner().is_none() && middle.is_some_and(|(middle, _)| !is_gap(middle))
    }

    pub(crate) fn is_anything(&self) -> bool {
        self.text.bytes().all(|byte| byte == b'*')
    }

    /// Returns whether the pattern matches `text`, which must be in lower case.
    pub(crate) fn matches(&self, text: &str) -> bool {
        if self.exact {
            return self.text == text;
        }
        let Some((first, rest)) = self.text.split_once('*') else { return self.text == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // It suffices to try the first occurrence, because the wildcard after it matches any text.
        for part in middle.split('*') {
            match text.find(part) {
                Some(at) => text = &text[at + part.len()..],
                None => return false,
            }
        }
        text.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_match(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                naive_match(&pattern[1..], text) || text.first().is_some_and(|_| naive_match(pattern, &text[1..]))
            }
            (Some(a), Some(b)) => a == b && naive_match(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]
        #[test]
        fn matching_agrees_with_a_naive_matcher(pattern in "[ab*]{0,7}", text in "[ab]{0,8}") {
            prop_assert_eq!(Pattern::new(&pattern).matches(&text), naive_match(pattern.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn only_patterns_that_combine_inner_text_with_other_text_are_searched_alone() {
        for (pattern, inner) in [("*Bot*", Some("bot")), ("**bot**", Some("bot")), ("bot*", None), ("*a*b*", None)] {
            assert_eq!(Pattern::new(pattern).inner(), inner, "{pattern}");
        }
        assert_eq!(Pattern::exactly("*bot*").inner(), None);
        #[cfg(feature = "serde")]
        for (pattern, alone) in [("*bot*", false), ("a*", false), ("a**b", false), ("a*b*", true), ("*a*b*", true)] {
            assert_eq!(Pattern::new(pattern).is_searched_alone(), alone, "{pattern}");
        }
    }

    #[test]
    fn case_is_ignored_and_other_characters_are_literal() {
        assert!(Pattern::new("*GPTBot/*").matches("mozilla/5.0 gptbot/1.1"));
        assert!(Pattern::new("curl/8.0 (?.+)").matches("curl/8.0 (?.+)"));
        assert!(!Pattern::new("curl/8.0 (?.+)").matches("curl/8.0 (x+)"));
        assert!(Pattern::new("a*a").matches("aa") && !Pattern::new("a*a").matches("a"));
    }
}
