//! Keys from requests: the extractor trait and the extractors of this crate.
//!
//! | key | extractor |
//! | --- | --- |
//! | anything your own code finds | a closure over the request's parts |
//! | a user or session set by an authentication layer | [`extension`] |
//! | the peer's address | [`client_ip`], behind proxies [`ClientIp::trust`] |
//! | a credential | [`bearer`], [`header`], [`cookie`] |
//! | a path parameter | `path` (feature `axum`) |
//! | one key for all callers | [`global`] |
//! | the server a client sends to | [`host`] |
//! | anything axum can extract | `from_extractor` (feature `axum`) |
//!
//! Combine extractors with [`or`](KeyExtractor::or), [`and`](KeyExtractor::and) and [`map`](KeyExtractor::map). Callers
//! without a key are anonymous and share one row, unless the extractor ends in [`or_reject`](KeyExtractor::or_reject)
//! or [`or_skip`](KeyExtractor::or_skip).
//!
//! # Which keys a client can invent
//!
//! A client that can invent keys gets a full bucket for each of them. A client that can name another client's key can
//! spend its tokens or get it [blocked](crate::protection::AutoBlock). Clients must therefore not be able to choose
//! their keys.
//!
//! | key | vouched for by | a client can |
//! | --- | --- | --- |
//! | [`client_ip`], behind proxies with [`ClientIp::trust`] | the connection, or your proxy | use its addresses |
//! | [`extension`] set by an authentication layer | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] inside a layer that rejects invalid credentials | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] alone | nothing | **invent** a new one for each request |
//! | `path`, a field of the body, a user name in a handler | nothing | **name** any of them |
//! | [`global`] | nothing to choose | spend all tokens |
//!
//! Combinators do not help: a pair with an invented half is an invented key, so `bearer().and(client_ip())` admits any
//! number of requests from one address. With [`or`](KeyExtractor::or), any value of the header bypasses the limit by
//! address. Instead:
//!
//! - Check the credential in a layer outside the limiter and count by its result:
//!   `extension(|user: &User| user.id).or(client_ip())`.
//! - If the credential can only be checked inside the limiter, add a rule by address, which requests have to pass as
//!   well: `RateLimitLayer::new(PER_TOKEN, bearer().or_skip()).and(PER_ADDRESS, client_ip())`.
//! - Count attempts on an account by account *and* address (see [limits turned against
//!   others](crate::docs::limitations#limits-turned-against-others)), and block by address alone
//!   ([`AutoBlock::without_keys`](crate::protection::AutoBlock::without_keys)).

pub use crate::middleware::key::{
    And, Bearer, ClientIp, Cookie, Extension, Extraction, Found, Global, Header, Host, KeyExtractor, Map, Or, OrReject,
    OrSkip, PeerAddr, bearer, client_ip, cookie, extension, global, header, host,
};
#[cfg(feature = "axum")]
pub use crate::middleware::key::{FromExtractor, PathParam, from_extractor, path};
pub use crate::policy::digest::{Digest, Secret};
pub use crate::policy::key::Key;
pub use crate::policy::key_error::KeyError;
pub use crate::policy::key_text::ParseKeyError;
pub use crate::policy::network::CidrError;
