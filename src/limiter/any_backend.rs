//! The backend of a limiter: the usual one without the call through a pointer.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::backend::{Backend, MemoryBackend};

/// The calls that cannot be compiled into their caller cost as much as the decision: what goes through one goes through
/// memory.
pub(super) enum AnyBackend {
    Memory(Arc<MemoryBackend>),
    Other(Box<dyn Backend>),
}

impl AnyBackend {
    pub(super) fn new<B: Backend>(backend: B) -> AnyBackend {
        // Whether a type is another, of types known when this is compiled.
        let mut backend = Some(backend);
        let any: &mut dyn Any = &mut backend;
        if let Some(memory) = any.downcast_mut::<Option<MemoryBackend>>().and_then(Option::take) {
            return AnyBackend::Memory(Arc::new(memory));
        }
        if let Some(memory) = any.downcast_mut::<Option<Arc<MemoryBackend>>>().and_then(Option::take) {
            return AnyBackend::Memory(memory);
        }
        match backend {
            Some(backend) => AnyBackend::Other(Box::new(backend)),
            None => unreachable!("it was taken above, and returned"),
        }
    }

    /// The backend in this process's memory, if that is the one.
    #[inline]
    pub(super) fn memory(&self) -> Option<&MemoryBackend> {
        match self {
            AnyBackend::Memory(memory) => Some(memory),
            AnyBackend::Other(_) => None,
        }
    }
}

impl Deref for AnyBackend {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        match self {
            AnyBackend::Memory(memory) => &**memory,
            AnyBackend::Other(backend) => &**backend,
        }
    }
}

impl fmt::Debug for AnyBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_in_memory_is_known_however_it_is_given() {
        assert!(AnyBackend::new(MemoryBackend::new()).memory().is_some());
        let shared = Arc::new(MemoryBackend::new());
        let known = AnyBackend::new(Arc::clone(&shared));
        assert!(known.memory().is_some_and(|memory| std::ptr::eq(memory, &*shared)));
        let boxed: Box<dyn Backend> = Box::new(MemoryBackend::new());
        assert!(AnyBackend::new(boxed).memory().is_none());
    }
}
