//! Chooses which of a layer's rules apply to a request, by looking up its route or by calling a closure.

use std::collections::HashMap;

use http::request::Parts;

use super::table::Table;
use crate::limiter::RateLimiter;

pub(super) struct RouteChoice {
    targets: Vec<Target>,
    /// The target to use if `chooser` finds none.
    default: Option<usize>,
    chooser: Chooser,
}

/// A route's limits: the indexes of its rules in the layer, and the cost for rules that have no cost of their own.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) rules: Vec<usize>,
    pub(super) cost: Option<u64>,
}

pub(super) enum Chooser {
    Table(Table),
    /// The closure returns a target's name. The map contains the index of each target by name.
    Closure(Box<ChooseFn>, HashMap<String, usize>),
}

pub(super) type ChooseFn = dyn Fn(&Parts) -> Option<&'static str> + Send + Sync;

impl RouteChoice {
    pub(super) fn new(targets: Vec<Target>, default: Option<usize>, chooser: Chooser) -> RouteChoice {
        RouteChoice { targets, default, chooser }
    }

    /// Returns the target for a request. Reports an unknown name as a mistake.
    pub(super) fn of(&self, parts: &Parts, limiter: &RateLimiter) -> Option<&Target> {
        let chosen = match &self.chooser {
            Chooser::Table(table) => table.target(parts),
            Chooser::Closure(choose, names) => choose(parts).and_then(|name| {
                let known = names.get(name).copied();
                if known.is_none() {
                    limiter.unknown_policy(name, names.keys().map(String::as_str));
                }
                known
            }),
        };
        self.targets.get(chosen.or(self.default)?)
    }

    /// Returns the rules and the cost of each target that has a cost.
    pub(super) fn fixed_costs(&self) -> impl Iterator<Item = (&[usize], u64)> {
        self.targets.iter().filter_map(|target| Some((&target.rules[..], target.cost?)))
    }

    pub(super) fn table(&self) -> Option<&Table> {
        match &self.chooser {
            Chooser::Table(table) => Some(table),
            Chooser::Closure(..) => None,
        }
    }
}
