//! Extraction of keys from requests: the extractor trait, and the extractors that this crate provides.
//!
//! Combine extractors with [`or`](KeyExtractor::or), [`and`](KeyExtractor::and) and [`map`](KeyExtractor::map). Callers
//! without a key are anonymous and share one row, unless the extractor ends with [`or_reject`](KeyExtractor::or_reject)
//! or [`or_skip`](KeyExtractor::or_skip).
//!
//! # Which keys a client can invent
//!
//! A client that can invent keys gets a full bucket for each of them. A client that can name another client's key can
//! spend the other client's tokens or get that client [blocked](crate::protection::AutoBlock). Therefore, clients must
//! not be able to choose their keys.
//!
//! | key | extractor | a client can |
//! | --- | --- | --- |
//! | a user or session set by an authentication layer | [`extension`] | log in |
//! | the client's address | [`client_ip`]; behind proxies, with [`ClientIp::trust`] | use all its addresses |
//! | a credential, inside a layer that rejects invalid ones | [`bearer`], [`header`], [`cookie`] | log in |
//! | an unchecked credential | [`bearer`], [`header`], [`cookie`] | **invent** a new key for each request |
//! | a path parameter | `path` (feature `axum`) | **name** any other client's key |
//! | a field of the body, or a user name in a handler | none | **name** any other client's key |
//! | one key for all callers | [`global`] | spend all tokens |
//! | the server of an outgoing request | [`host`] | choose the server, so use this extractor only around an HTTP client |
//! | another value | a closure over the request's parts, `from_extractor` (feature `axum`) | depends on the value |
//!
//! Combining extractors does not help. If either key of a pair is new, the pair is a new key, so
//! `bearer().and(client_ip())` admits any number of requests from one address. In `bearer().or(client_ip())`, any
//! bearer token bypasses the per-address limit. Do this instead:
//!
//! - Check the credential in a layer outside the limiter, and use the result as the key: `extension(|user: &User|
//!   user.id).or(client_ip())`.
//! - If the credential can be checked only inside the limiter, add a rule with a per-address limit as well:
//!   `RateLimitLayer::new(PER_TOKEN, bearer().or_skip()).and(PER_ADDRESS, client_ip())`.
//! - Limit attempts on an account by the pair of account *and* address (see [limits turned against
//!   others](crate::docs::limitations#limits-turned-against-others)), and block only addresses
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
