//! A sequence with ranks: every operation takes time logarithmic in its length.

use std::hash::{BuildHasher, RandomState};

/// An entry of a [`Sequence`], with a sum that is known of every run of entries.
pub(super) trait Entry {
    /// What is known of a run.
    type Sum: Copy + std::fmt::Debug;

    /// What is known of this entry by itself.
    fn sum(&self) -> Self::Sum;

    /// What is known of two runs, one right after the other.
    fn join(left: Self::Sum, right: Self::Sum) -> Self::Sum;
}

/// Entries in an order that their ranks give, and not their values.
///
/// It is a treap (Seidel and Aragon, "Randomized search trees", 1996): a binary tree with the lower rank on the left and
/// the higher of two random priorities on top, so that its depth is logarithmic whatever is inserted and removed.
#[derive(Debug)]
pub(super) struct Sequence<T: Entry> {
    nodes: Vec<Node<T>>,
    /// Indices in `nodes` that are free.
    free: Vec<usize>,
    root: Link,
    priorities: RandomState,
    inserted: u64,
}

/// Refers to an entry as long as it is in the sequence, wherever it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(usize);

type Link = Option<usize>;

#[derive(Debug)]
struct Node<T: Entry> {
    /// `None` if the node is free.
    entry: Option<T>,
    /// Of the subtree.
    sum: T::Sum,
    length: usize,
    priority: u64,
    parent: Link,
    left: Link,
    right: Link,
}

impl<T: Entry> Sequence<T> {
    pub(super) fn new() -> Sequence<T> {
        Sequence { nodes: Vec::new(), free: Vec::new(), root: None, priorities: RandomState::new(), inserted: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length(self.root)
    }

    pub(super) fn get(&self, rank: usize) -> Option<&T> {
        self.nodes[self.at(rank)?].entry.as_ref()
    }

    /// Inserts an entry, which has this rank then.
    pub(super) fn insert(&mut self, rank: usize, entry: T) -> Handle {
        self.inserted += 1;
        let index = self.free.pop().unwrap_or(self.nodes.len());
        let node = Node {
            sum: entry.sum(),
            entry: Some(entry),
            length: 1,
            priority: self.priorities.hash_one(self.inserted),
            parent: None,
            left: None,
            right: None,
        };
        match self.nodes.get_mut(index) {
            Some(free) => *free = node,
            None => self.nodes.push(node),
        }
        self.attach(rank, index);
        Handle(index)
    }

    pub(super) fn remove(&mut self, rank: usize) -> Option<T> {
        let index = self.detach(rank)?;
        self.free.push(index);
        self.nodes[index].entry.take()
    }

    /// Moves the entry with one rank to another; those in between move over by one.
    pub(super) fn shift(&mut self, from: usize, to: usize) {
        if let Some(index) = self.detach(from) {
            self.attach(to, index);
        }
    }

    /// The rank of an entry.
    pub(super) fn rank(&self, Handle(index): Handle) -> usize {
        let mut rank = self.length(self.nodes[index].left);
        let mut below = index;
        while let Some(above) = self.nodes[below].parent {
            if self.nodes[above].right == Some(below) {
                rank += self.length(self.nodes[above].left) + 1;
            }
            below = above;
        }
        rank
    }

    /// Changes an entry, wherever it is.
    pub(super) fn change<R>(&mut self, Handle(index): Handle, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let changed = self.nodes[index].entry.as_mut().map(change);
        let mut node = Some(index);
        while let Some(index) = node {
            self.update(index);
            node = self.nodes[index].parent;
        }
        changed
    }

    /// Changes the entry with this rank.
    pub(super) fn change_at<R>(&mut self, rank: usize, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.change(Handle(self.at(rank)?), change)
    }

    /// The end of the longest run from `begin` on of whose sum `is_so` holds; it must hold of each run within that, and
    /// of none beyond.
    pub(super) fn partition_point(&self, begin: usize, is_so: impl Fn(T::Sum) -> bool) -> usize {
        self.first_beyond(self.root, begin, &mut None, &is_so).unwrap_or(self.len())
    }

    fn first_beyond(
        &self,
        node: Link,
        begin: usize,
        before: &mut Option<T::Sum>,
        is_so: &impl Fn(T::Sum) -> bool,
    ) -> Option<usize> {
        let node = &self.nodes[node?];
        if begin >= node.length {
            return None;
        }
        let with = |sum| before.map_or(sum, |before| T::join(before, sum));
        if begin == 0 && is_so(with(node.sum)) {
            *before = Some(with(node.sum));
            return None;
        }
        let own = self.length(node.left);
        if let Some(rank) = self.first_beyond(node.left, begin, before, is_so) {
            return Some(rank);
        }
        if let Some(entry) = node.entry.as_ref().filter(|_| begin <= own) {
            let sum = before.map_or(entry.sum(), |before| T::join(before, entry.sum()));
            if !is_so(sum) {
                return Some(own);
            }
            *before = Some(sum);
        }
        let rank = self.first_beyond(node.right, begin.saturating_sub(own + 1), before, is_so)?;
        Some(own + 1 + rank)
    }

    /// The node with this rank.
    fn at(&self, mut rank: usize) -> Link {
        let mut index = self.root?;
        loop {
            let node = &self.nodes[index];
            let own = self.length(node.left);
            index = match rank.cmp(&own) {
                std::cmp::Ordering::Less => node.left?,
                std::cmp::Ordering::Equal => return Some(index),
                std::cmp::Ordering::Greater => {
                    rank -= own + 1;
                    node.right?
                }
            };
        }
    }

    /// Puts a node by itself into the tree.
    fn attach(&mut self, rank: usize, index: usize) {
        let (left, right) = self.split(self.root, rank);
        let left = self.merge(left, Some(index));
        let root = self.merge(left, right);
        self.set_root(root);
    }

    /// Takes the node with this rank out of the tree.
    fn detach(&mut self, rank: usize) -> Link {
        let (left, rest) = self.split(self.root, rank);
        let (node, right) = self.split(rest, 1);
        let root = self.merge(left, right);
        self.set_root(root);
        node
    }

    fn set_root(&mut self, root: Link) {
        self.root = root;
        if let Some(root) = root {
            self.nodes[root].parent = None;
        }
    }

    /// The first `count` nodes of a tree, and the others.
    fn split(&mut self, tree: Link, count: usize) -> (Link, Link) {
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

    /// One tree of two, one right after the other.
    fn merge(&mut self, left: Link, right: Link) -> Link {
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

    /// After its children or its entry have changed.
    fn update(&mut self, index: usize) {
        let Node { left, right, .. } = self.nodes[index];
        for child in [left, right].into_iter().flatten() {
            self.nodes[child].parent = Some(index);
        }
        let Some(own) = self.nodes[index].entry.as_ref().map(Entry::sum) else { return };
        let sum = left.map_or(own, |left| T::join(self.nodes[left].sum, own));
        let sum = right.map_or(sum, |right| T::join(sum, self.nodes[right].sum));
        let length = self.length(left) + 1 + self.length(right);
        (self.nodes[index].sum, self.nodes[index].length) = (sum, length);
    }

    fn length(&self, tree: Link) -> usize {
        tree.map_or(0, |index| self.nodes[index].length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Entry for u64 {
        type Sum = u64;

        fn sum(&self) -> u64 {
            *self
        }

        fn join(left: u64, right: u64) -> u64 {
            left + right
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a `Vec`.
        #[test]
        fn it_is_a_vec_with_handles_and_sums(acts in prop::collection::vec((0u8..6, any::<u16>(), any::<u16>()), 0..200)) {
            let (mut sequence, mut vec) = (Sequence::new(), Vec::<(Handle, u64)>::new());
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
                        prop_assert_eq!(sequence.remove(rank), removed);
                    }
                    4 if rank < vec.len() => {
                        sequence.shift(rank, to);
                        let moved = vec.remove(rank);
                        vec.insert(to, moved);
                    }
                    5 if rank < vec.len() => {
                        prop_assert_eq!(sequence.change(vec[rank].0, |entry| std::mem::replace(entry, value)), Some(vec[rank].1));
                        prop_assert_eq!(sequence.change_at(rank, |entry| *entry), Some(value));
                        vec[rank].1 = value;
                    }
                    _ => {}
                }
                prop_assert_eq!(sequence.len(), vec.len());
                for (rank, (handle, value)) in vec.iter().enumerate() {
                    prop_assert_eq!((sequence.rank(*handle), sequence.get(rank)), (rank, Some(value)));
                }
                let mut sum = 0;
                let fits = vec[rank.min(vec.len())..].iter().take_while(|(_, entry)| {
                    sum += entry;
                    sum <= value
                });
                prop_assert_eq!(sequence.partition_point(rank, |sum| sum <= value), rank + fits.count());
            }
        }
    }

    #[test]
    fn its_depth_is_logarithmic() {
        fn depth(sequence: &Sequence<u64>, tree: Link) -> usize {
            let node = |index: usize| &sequence.nodes[index];
            tree.map_or(0, |index| 1 + depth(sequence, node(index).left).max(depth(sequence, node(index).right)))
        }
        let mut sequence = Sequence::new();
        for number in 0..10_000 {
            sequence.insert(sequence.len(), number);
        }
        // 31 on average.
        assert!(depth(&sequence, sequence.root) < 80);
        for _ in 0..5_000 {
            sequence.remove(0);
        }
        assert!(depth(&sequence, sequence.root) < 80);
        let capacity = sequence.nodes.len();
        for number in 0..5_000 {
            sequence.insert(0, number);
        }
        assert_eq!(sequence.nodes.len(), capacity, "free nodes are used again");
        assert!(depth(&sequence, sequence.root) < 80);
    }
}
