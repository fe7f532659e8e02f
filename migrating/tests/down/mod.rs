//! A backend whose server is down.

use tollgate::backend::{Adjustment, Backend, BackendFuture, RowId, Steps, Take};
use tollgate::backend::{Error, ErrorKind};

#[derive(Debug)]
pub struct Down;

fn down<T>() -> BackendFuture<T> {
    BackendFuture::ready(Err(Error::new(ErrorKind::Unavailable, "down")))
}

impl Backend for Down {
    fn acquire(&self, _: &[Take<'_>]) -> BackendFuture<Steps> {
        down()
    }

    fn peek(&self, _: &[Take<'_>]) -> BackendFuture<Steps> {
        down()
    }

    fn settle(&self, _: &[Adjustment<'_>]) -> BackendFuture<bool> {
        down()
    }

    fn reset(&self, _: &[RowId<'_>]) -> BackendFuture<usize> {
        down()
    }
}
