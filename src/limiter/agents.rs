//! A deny list's user agent patterns that contain a `*`.
//!
//! One automaton searches for all patterns of the form `*text*` in one pass. Other patterns are tried one by one.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::policy::{DenyRule, Pattern};

#[derive(Default)]
pub(super) struct Agents {
    texts: Option<AhoCorasick>,
    /// The rule for each text, in the automaton's order.
    by_text: Vec<Arc<DenyRule>>,
    others: Vec<(Pattern, Arc<DenyRule>)>,
}

impl Agents {
    pub(super) fn new(patterns: &[(&Pattern, &Arc<DenyRule>)]) -> Agents {
        let texts: Vec<_> = patterns.iter().filter_map(|(pattern, rule)| Some((pattern.inner()?, *rule))).collect();
        // This kind of automaton needs the least memory. Building fails only for more than two billion bytes of text.
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(texts.iter().map(|(text, _)| text))
            .ok();
        let is_other = |(pattern, _): &&(&Pattern, &Arc<DenyRule>)| automaton.is_none() || pattern.inner().is_none();
        let others = patterns.iter().filter(is_other).map(|(pattern, rule)| ((*pattern).clone(), Arc::clone(rule)));
        Agents {
            others: others.collect(),
            texts: automaton,
            by_text: texts.iter().map(|(_, rule)| Arc::clone(rule)).collect(),
        }
    }

    /// Returns a rule whose pattern matches `agent`, which must be lowercase.
    pub(super) fn find(&self, agent: &str) -> Option<&Arc<DenyRule>> {
        let found = self.texts.as_ref().and_then(|texts| texts.find(agent));
        let by_text = found.and_then(|found| self.by_text.get(found.pattern().as_usize()));
        by_text.or_else(|| Some(&self.others.iter().find(|(pattern, _)| pattern.matches(agent))?.1))
    }

    pub(super) fn len(&self) -> usize {
        self.by_text.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agents(patterns: &[String]) -> Agents {
        let rules: Vec<_> = patterns.iter().map(|text| (Pattern::new(text), Arc::new(DenyRule::key(text)))).collect();
        Agents::new(&rules.iter().map(|(pattern, rule)| (pattern, rule)).collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn a_list_matches_if_one_of_its_patterns_matches(
            patterns in proptest::collection::vec("[ab]{0,2}\\*[ab]{0,4}\\*{0,2}[ab]?", 0..6),
            agent in "[ab]{0,12}",
        ) {
            let matches = |pattern: &String| Pattern::new(pattern).matches(&agent);
            match agents(&patterns).find(&agent) {
                None => prop_assert!(!patterns.iter().any(matches)),
                Some(rule) => prop_assert!(patterns.iter().any(|text| matches(text) && **rule == DenyRule::key(text))),
            }
        }
    }

    #[test]
    fn the_largest_list_allowed_in_a_file_compiles_to_less_than_8_mb() {
        // The automaton is largest for texts without common prefixes.
        let text =
            |i: usize| (0..254).map(|at| char::from(b'a' + ((i * 7 + at * (i + 3)) % 26) as u8)).collect::<String>();
        let agents = agents(&(0..1000).map(|i| format!("*{}*", text(i))).collect::<Vec<_>>());
        assert_eq!((agents.len(), agents.others.len()), (1000, 0));
        let bytes = agents.texts.as_ref().map(AhoCorasick::memory_usage).unwrap();
        assert!(bytes < 8_000_000, "{bytes}");
        assert!(agents.find(&format!("mozilla {} x", text(999))).is_some());
    }
}
