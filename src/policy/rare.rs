//! What is mostly not there, of something that is handed about by value.

/// It is let go of by value. What drops it in place is handed a pointer, in a function that may not be compiled into the
/// caller; then all of what it is a part of has to be in memory for that, even where it is never there and nobody looks at
/// the rest. Of a decision that is twenty-eight words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rare<T>(Option<T>);

impl<T> Rare<T> {
    pub(super) const NONE: Rare<T> = Rare(None);

    pub(super) const fn some(it: T) -> Rare<T> {
        Rare(Some(it))
    }

    #[inline(always)]
    pub(super) const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Drop for Rare<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(it) = self.0.take() {
            let_go(it);
        }
    }
}

#[inline(never)]
fn let_go<T>(it: T) {
    drop(it);
}
