//! Creates layers from a configuration.

use std::sync::Arc;

use super::Config;
use super::policies::ConfiguredPolicy;
use super::reader::Keys;
use super::routes::Choice;
use crate::limiter::RateLimiter;
use crate::middleware::key::KeyExtractor;
use crate::middleware::{RateLimitLayer, RouteLimits, Rule};

impl Config {
    /// Returns a single layer for all routes. `key` identifies callers for policies that name no extractor. Add the
    /// layer to the router as described in [`RouteLimits::table`](crate::RouteLimits::table).
    ///
    /// # Panics
    /// Panics in the same cases as [`route_limits`](Config::route_limits), and if the configuration has none of
    /// `default`, `all_routes` and `routes`.
    #[must_use]
    #[track_caller]
    pub fn layer(&self, limiter: &RateLimiter, key: impl KeyExtractor) -> RateLimitLayer {
        let mut limits = self.route_limits(limiter, key);
        assert!(
            self.default.is_some() || !self.all_routes.is_empty() || !self.routes.is_empty(),
            "tollgate: the configuration has none of `default`, `all_routes` and `routes`, so this layer would limit \
             nothing; add one of these fields"
        );
        let mut lines = Vec::new();
        for (line, choice) in &self.routes {
            let name;
            (limits, name) = with_choice(limits, line, choice);
            lines.push((line, name));
        }
        limits.table(lines.iter().map(|(line, name)| (line.as_str(), name.as_str())))
    }

    /// Returns the policies that routes can choose from, without the `routes` of this configuration. Every layer
    /// created from the result applies the policies in `all_routes`.
    ///
    /// # Panics
    /// Panics if `limiter` lacks the configured deny list or automatic blocking. Build the limiter with
    /// [`Config::limiter`].
    #[must_use]
    #[track_caller]
    pub fn route_limits(&self, limiter: &RateLimiter, key: impl KeyExtractor) -> RouteLimits {
        self.expect_limiter(limiter);
        let key: Arc<dyn KeyExtractor> = Arc::new(key);
        let rule = |name: &String| Some(self.policies.get(name)?.rule(&self.keys, &key));
        let chosen = self.policies.keys().filter(|name| !self.all_routes.contains(name)).filter_map(rule);
        let limits = RouteLimits::shared(Arc::clone(&key)).limiter(limiter);
        let limits = chosen.fold(limits, RouteLimits::rule);
        let limits =
            limits.configure(|layer| self.all_routes.iter().filter_map(rule).fold(layer, RateLimitLayer::rule));
        match &self.default {
            Some(choice) => {
                let (limits, name) = with_choice(limits, "default", choice);
                limits.default_group(&name)
            }
            None => limits,
        }
    }
}

impl ConfiguredPolicy {
    fn rule(&self, keys: &Keys, key: &Arc<dyn KeyExtractor>) -> Rule {
        let own = self.settings.key.as_ref().and_then(|name| keys.get(name));
        let mut rule = Rule::shared(self.policy.clone(), own.unwrap_or_else(|| Arc::clone(key)));
        if let Some(cost) = self.settings.cost {
            rule = rule.fixed_cost(cost);
        }
        #[cfg(feature = "wait")]
        if let Some(wait) = self.settings.wait {
            rule = rule.wait_up_to(wait);
        }
        rule
    }
}

/// Returns the name by which routes select `choice`. Adds a group unless `choice` is a single policy without a cost.
#[track_caller]
fn with_choice(limits: RouteLimits, line: &str, choice: &Choice) -> (RouteLimits, String) {
    if let ([policy], None) = (&choice.policies[..], choice.cost) {
        return (limits, policy.clone());
    }
    // No policy has this name, because policy names are ASCII.
    let name = format!("→ {line}");
    let policies = choice.policies.iter().map(String::as_str);
    (limits.group_with_cost(name.clone(), policies, choice.cost), name)
}
