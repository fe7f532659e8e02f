//! Chooses which of a layer's rules apply to a request, by the request's route or with a closure.

use http::request::Parts;

use super::table::Table;

pub(super) struct RouteChoice {
    targets: Vec<Target>,
    /// The target for requests for which `chooser` returns `None`.
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
    Closure(Box<ChooseFn>),
}

/// Chooses the target for a request, and returns the target's index.
pub(super) type ChooseFn = dyn Fn(&Parts) -> Option<usize> + Send + Sync;

impl RouteChoice {
    pub(super) fn new(targets: Vec<Target>, default: Option<usize>, chooser: Chooser) -> RouteChoice {
        RouteChoice { targets, default, chooser }
    }

    pub(super) fn of(&self, parts: &Parts) -> Option<&Target> {
        let chosen = match &self.chooser {
            Chooser::Table(table) => table.target(parts),
            Chooser::Closure(choose) => choose(parts),
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
            Chooser::Closure(_) => None,
        }
    }
}
