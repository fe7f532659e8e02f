//! A sequence of ranked entries. All operations take logarithmic time.

use std::hash::{BuildHasher, RandomState};

use slab::Slab;

/// An entry of a [`Sequence`]. Every run of adjacent entries has a summary.
pub(super) trait Summarize {
    type Summary: Copy + std::fmt::Debug;

    fn summary(&self) -> Self::Summary;

    fn join(left: Self::Summary, right: Self::Summary) -> Self::Summary;
}

/// A sequence of entries, ordered by rank rather than by value. It is a treap (Seidel and Aragon, "Randomized search
/// trees", 1996): a binary tree with lower ranks on the left and higher random priorities at the top. Its expected
/// depth is logarithmic, whatever the order of insertions and removals.
#[derive(Debug)]
pub(super) struct Sequence<T: Summarize> {
    nodes: Slab<Node<T>>,
    root: Subtree,
    priorities: RandomState,
    inserted: u64,
}

/// Identifies an entry for as long as it is in the sequence, even if its rank changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId(usize);

type Subtree = Option<usize>;

#[derive(Debug)]
struct Node<T: Summarize> {
    entry: T,
    summary: T::Summary,
    length: usize,
    priority: u64,
    /// The index of the parent, which is arbitrary for the root.
    parent: usize,
    left: Subtree,
    right: Subtree,
}

impl<T: Summarize> Sequence<T> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn get(&self, EntryId(index): EntryId) -> &T {
        &self.nodes[index].entry
    }

    pub(super) fn insert(&mut self, rank: usize, entry: T) -> EntryId {
        self.inserted += 1;
        let (summary, priority) = (entry.summary(), self.priorities.hash_one(self.inserted));
        let node = Node { entry, summary, length: 1, priority, parent: 0, left: None, right: None };
        let handle = EntryId(self.nodes.insert(node));
        self.attach(rank, handle);
        handle
    }

    pub(super) fn remove(&mut self, handle: EntryId) -> T {
        self.detach(handle);
        self.nodes.remove(handle.0).entry
    }

    pub(super) fn shift(&mut self, handle: EntryId, to: usize) {
        self.detach(handle);
        self.attach(to, handle);
    }

    pub(super) fn rank(&self, EntryId(index): EntryId) -> usize {
        let mut rank = self.length(self.nodes[index].left);
        let mut below = index;
        while self.root != Some(below) {
            let above = self.nodes[below].parent;
            if self.nodes[above].right == Some(below) {
                rank += self.length(self.nodes[above].left) + 1;
            }
            below = above;
        }
        rank
    }

    pub(super) fn change<R>(&mut self, EntryId(mut index): EntryId, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut self.nodes[index].entry);
        self.update(index);
        while self.root != Some(index) {
            index = self.nodes[index].parent;
            self.update(index);
        }
        changed
    }

    pub(super) fn at(&mut self, rank: usize) -> Option<EntryId> {
        self.first_beyond(rank, |_| false)
    }

    /// Returns the end of the longest run from `begin` for which `fits` is true. `fits` must be true for all shorter
    /// runs and false for all longer ones.
    pub(super) fn partition_point(&mut self, begin: usize, fits: impl Fn(T::Summary) -> bool) -> usize {
        self.first_beyond(begin, fits).map_or(self.len(), |beyond| self.rank(beyond))
    }

    /// Like `partition_point`, but returns the first entry after the run.
    pub(super) fn first_beyond(&mut self, begin: usize, fits: impl Fn(T::Summary) -> bool) -> Option<EntryId> {
        let (before, behind) = self.split(self.root, begin);
        let (mut tree, mut run, mut found) = (behind, None, None);
        while let Some(index) = tree {
            let node = &self.nodes[index];
            let run_to = |run: Option<T::Summary>, summary| run.map_or(summary, |run| T::join(run, summary));
            let left = node.left.map(|left| run_to(run, self.nodes[left].summary));
            let own = run_to(left.or(run), node.entry.summary());
            if left.is_some_and(|run| !fits(run)) {
                tree = node.left;
            } else if fits(own) {
                (tree, run) = (node.right, Some(own));
            } else {
                (tree, found) = (None, Some(EntryId(index)));
            }
        }
        self.root = self.merge(before, behind);
        found
    }

    fn attach(&mut self, rank: usize, EntryId(index): EntryId) {
        let (left, right) = self.split(self.root, rank);
        let left = self.merge(left, Some(index));
        self.root = self.merge(left, right);
    }

    fn detach(&mut self, handle: EntryId) {
        let (left, rest) = self.split(self.root, self.rank(handle));
        let (_node, right) = self.split(rest, 1);
        self.root = self.merge(left, right);
    }

    fn split(&mut self, tree: Subtree, count: usize) -> (Subtree, Subtree) {
        let Some(index) = tree else { return (None, None) };
        let own = self.length(self.nodes[index].left);
        let halves = if count <= own {
            let (first, rest) = self.split(self.nodes[index].left, count);
            self.nodes[index].left = rest;
            (first, Some(index))
        } else {
            let (first, rest) = self.split(self.nodes[index].right, count - own - 1);
            self.nodes[index].right = first;
            (Some(index), rest)
        };
        self.update(index);
        halves
    }

    fn merge(&mut self, left: Subtree, right: Subtree) -> Subtree {
        let (Some(first), Some(last)) = (left, right) else { return left.or(right) };
        let top = if self.nodes[first].priority > self.nodes[last].priority {
            self.nodes[first].right = self.merge(self.nodes[first].right, right);
            first
        } else {
            self.nodes[last].left = self.merge(left, self.nodes[last].left);
            last
        };
        self.update(top);
        Some(top)
    }

    /// Recomputes a node's summary and length after a change to its children or entry.
    fn update(&mut self, index: usize) {
        let Node { left, right, .. } = self.nodes[index];
        for child in [left, right].into_iter().flatten() {
            self.nodes[child].parent = index;
        }
        let own = self.nodes[index].entry.summary();
        let summary = left.map_or(own, |left| T::join(self.nodes[left].summary, own));
        let summary = right.map_or(summary, |right| T::join(summary, self.nodes[right].summary));
        let length = self.length(left) + 1 + self.length(right);
        (self.nodes[index].summary, self.nodes[index].length) = (summary, length);
    }

    fn length(&self, tree: Subtree) -> usize {
        tree.map_or(0, |index| self.nodes[index].length)
    }
}

impl<T: Summarize> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence { nodes: Slab::new(), root: None, priorities: RandomState::new(), inserted: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Summarize for u64 {
        type Summary = u64;

        fn summary(&self) -> u64 {
            *self
        }

        fn join(left: u64, right: u64) -> u64 {
            left + right
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_sequence_behaves_like_a_vec(acts in prop::collection::vec((0u8..6, any::<u16>(), any::<u16>()), 0..200)) {
            let (mut sequence, mut vec) = (Sequence::default(), Vec::<(EntryId, u64)>::new());
            for (act, one, other) in acts {
                let (rank, value) = (usize::from(one) % (vec.len() + 1), u64::from(other % 100));
                let to = usize::from(other) % vec.len().max(1);
                match act {
                    0..=2 => {
                        let handle = sequence.insert(rank, value);
                        prop_assert!(vec.iter().all(|(other, _)| *other != handle));
                        vec.insert(rank, (handle, value));
                    }
                    3 => {
                        let removed = (rank < vec.len()).then(|| vec.remove(rank).1);
                        let found = sequence.at(rank);
                        prop_assert_eq!(found.map(|entry| sequence.remove(entry)), removed);
                    }
                    4 if rank < vec.len() => {
                        sequence.shift(vec[rank].0, to);
                        let moved = vec.remove(rank);
                        vec.insert(to, moved);
                    }
                    5 if rank < vec.len() => {
                        prop_assert_eq!(sequence.change(vec[rank].0, |entry| std::mem::replace(entry, value)), vec[rank].1);
                        prop_assert_eq!(sequence.at(rank).map(|entry| *sequence.get(entry)), Some(value));
                        vec[rank].1 = value;
                    }
                    _ => {}
                }
                prop_assert_eq!(sequence.len(), vec.len());
                for (rank, (handle, value)) in vec.iter().enumerate() {
                    prop_assert_eq!((sequence.rank(*handle), sequence.at(rank), sequence.get(*handle)), (rank, Some(*handle), value));
                }
                let mut summary = 0;
                let fits = vec[rank.min(vec.len())..].iter().take_while(|(_, entry)| {
                    summary += entry;
                    summary <= value
                });
                prop_assert_eq!(sequence.partition_point(rank, |summary| summary <= value), rank + fits.count());
            }
        }
    }

    #[test]
    fn the_depth_is_logarithmic() {
        fn depth(sequence: &Sequence<u64>, tree: Subtree) -> usize {
            let node = |index: usize| &sequence.nodes[index];
            tree.map_or(0, |index| 1 + depth(sequence, node(index).left).max(depth(sequence, node(index).right)))
        }
        let mut sequence = Sequence::default();
        for number in 0..10_000 {
            sequence.insert(sequence.len(), number);
        }
        // On average, the tree is 31 levels deep.
        assert!(depth(&sequence, sequence.root) < 80);
        for _ in 0..5_000 {
            let first = sequence.at(0).expect("an entry");
            sequence.remove(first);
        }
        assert!(depth(&sequence, sequence.root) < 80);
        let capacity = sequence.nodes.capacity();
        for number in 0..5_000 {
            sequence.insert(0, number);
        }
        assert_eq!(sequence.nodes.capacity(), capacity, "free nodes are reused");
        assert!(depth(&sequence, sequence.root) < 80);
    }
}
