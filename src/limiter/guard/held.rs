//! Who was blocked by hand: nobody of them is forgotten before their time.

use std::collections::HashMap;

use crate::algorithm::Micros;
use crate::policy::Digest;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{PoisonError, RwLock};

/// By the local clock.
#[derive(Default)]
pub(super) struct Held {
    until: RwLock<HashMap<Digest, Micros>>,
    any: AtomicBool,
}

impl Held {
    /// Whether anybody is blocked, or was.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Until when somebody is blocked, if they are.
    pub(super) fn blocked(&self, id: Digest, now: Micros) -> Option<Micros> {
        if !self.any() {
            return None;
        }
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        until.get(&id).copied().filter(|until| *until > now)
    }

    /// Blocks somebody until then, whatever was said of them before; whether there was room.
    pub(super) fn block(&self, id: Digest, now: Micros, until: Micros) -> bool {
        let mut all = self.until.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST && !all.contains_key(&id) {
            all.retain(|_, until| *until > now);
            if all.len() >= MOST {
                return false;
            }
        }
        all.insert(id, until);
        self.any.store(true, Ordering::Release);
        true
    }

    /// Lets somebody go.
    pub(super) fn unblock(&self, id: Digest) {
        if self.any() {
            self.until.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }

    /// How many are blocked.
    pub(super) fn len(&self, now: Micros) -> usize {
        let all = self.until.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|until| **until > now).count()
    }
}

/// Callers that can be blocked by hand at once.
pub(super) const MOST: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_is_room_for_and_then_one_is_told() {
        let (held, now) = (Held::default(), Micros::new(1_000_000));
        for id in 0..MOST as u128 {
            assert!(held.block(Digest::from_bits(id), now, now.plus(1 + id as u64)));
        }
        assert_eq!(held.len(now), MOST);
        assert!(!held.block(Digest::from_bits(u128::MAX), now, now.plus(9)));
        assert!(held.block(Digest::from_bits(7), now, now.plus(9)), "who is there already");
        // Whose time is over makes room.
        let later = now.plus(5);
        assert!(held.block(Digest::from_bits(u128::MAX), later, later.plus(9)));
        assert_eq!(held.blocked(Digest::from_bits(u128::MAX), later), Some(later.plus(9)));
        assert_eq!(held.blocked(Digest::from_bits(2), later), None);
    }
}
