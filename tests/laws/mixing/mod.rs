//! Random histories over all features at once.
