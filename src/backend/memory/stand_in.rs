//! In DashMap's place where the locks are a model checker's: the same shards, the same choice among them, and no other
//! of its methods than the table uses. Of everything that the models run, this alone is not the crate's own code.

use super::row::AsIs;
use super::table::Shard;
use crate::sync::{PoisonError, RwLock, RwLockWriteGuard};

pub(super) struct Map {
    shards: Box<[Lock]>,
}

pub(super) struct Lock(RwLock<Shard>);

impl Map {
    pub(super) fn with_hasher_and_shard_amount(_: AsIs, shards: usize) -> Map {
        Map { shards: (0..shards).map(|_| Lock(RwLock::new(Shard::new()))).collect() }
    }

    /// The top 7 bits are hashbrown's, the next ones choose.
    pub(super) fn determine_shard(&self, hash: usize) -> usize {
        (hash << 7) >> (usize::BITS - self.shards.len().trailing_zeros())
    }

    pub(super) fn shards(&self) -> &[Lock] {
        &self.shards
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

impl Lock {
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Shard> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
