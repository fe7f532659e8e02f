//! A list that usually has one item.

use std::ops::{Deref, DerefMut};

/// A list of any number of items, which stores a single item without an allocation. Unlike a `SmallVec`, this enum
/// keeps the niches of `T`. An enum that wraps a list therefore needs no tag of its own, and wrapping a list does not
/// move its items.
#[derive(Clone, Debug)]
pub(crate) enum List<T> {
    One(T),
    More(Vec<T>),
}

impl<T> List<T> {
    pub(crate) fn push(&mut self, item: T) {
        match std::mem::take(self) {
            List::One(first) => *self = List::More(vec![first, item]),
            List::More(none) if none.is_empty() => *self = List::One(item),
            List::More(mut items) => {
                items.push(item);
                *self = List::More(items);
            }
        }
    }

    #[inline]
    pub(crate) fn of(length: usize, mut item: impl FnMut(usize) -> T) -> List<T> {
        match length {
            1 => List::One(item(0)),
            _ => List::More((0..length).map(item).collect()),
        }
    }

    #[inline]
    pub(crate) fn into_first(self) -> Option<T> {
        match self {
            List::One(item) => Some(item),
            List::More(items) => items.into_iter().next(),
        }
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List::More(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            List::One(item) => std::slice::from_ref(item),
            List::More(items) => items,
        }
    }
}

impl<T> DerefMut for List<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            List::One(item) => std::slice::from_mut(item),
            List::More(items) => items,
        }
    }
}

impl<T> FromIterator<T> for List<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> List<T> {
        let mut items = items.into_iter();
        match (items.next(), items.next()) {
            (Some(one), None) => List::One(one),
            (first, second) => List::More(first.into_iter().chain(second).chain(items).collect()),
        }
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, more) = match self {
            List::One(item) => (Some(item), Vec::new()),
            List::More(items) => (None, items),
        };
        one.into_iter().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn a_list_holds_its_items_in_order() {
        for number in 0..5 {
            let mut pushed = List::default();
            (0..number).for_each(|item| pushed.push(item));
            let collected: List<i32> = (0..number).collect();
            let made = List::of(number as usize, |i| i as i32);
            for mut list in [pushed, collected, made] {
                assert_eq!(list.len(), number as usize);
                assert!(list.iter().copied().eq(0..number));
                assert_eq!(matches!(list, List::One(_)), number == 1);
                list.iter_mut().for_each(|item| *item *= 2);
                assert_eq!(list.clone().into_first(), (number > 0).then_some(0));
                assert!(list.into_iter().eq((0..number).map(|item| item * 2)));
            }
        }
    }
}
