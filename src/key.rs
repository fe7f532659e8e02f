//! Finding the keys of requests: the extractor trait, and the extractors that this crate provides.
//!
//! | key | extractor |
//! | --- | --- |
//! | a value that your own code finds | a closure over the request's parts |
//! | a user or session set by an authentication layer | [`extension`] |
//! | the client's address | [`client_ip`]; behind proxies, with [`ClientIp::trust`] |
//! | a credential | [`bearer`], [`header`], [`cookie`] |
//! | a path parameter | `path` (feature `axum`) |
//! | one key for all callers | [`global`] |
//! | the host to which a request is addressed | [`host`] |
//! | a value that axum can extract | `from_extractor` (feature `axum`) |
//!
//! Combine extractors with [`or`](KeyExtractor::or), [`and`](KeyExtractor::and) and [`map`](KeyExtractor::map). Callers
//! without a key are anonymous and share one row, unless the extractor ends with [`or_reject`](KeyExtractor::or_reject)
//! or [`or_skip`](KeyExtractor::or_skip).
//!
//! # Which keys a client can invent
//!
//! A client that can invent keys gets a full bucket for each key that it invents. A client that can name another
//! client's key can spend the other client's tokens or get that client [blocked](crate::protection::AutoBlock).
//! Therefore, clients must not be able to choose their keys.
//!
//! | key | what guarantees it | a client can |
//! | --- | --- | --- |
//! | [`client_ip`]; behind proxies, with [`ClientIp::trust`] | the connection, or your proxy | use all its addresses |
//! | [`extension`] set by an authentication layer | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] inside a layer that rejects invalid credentials | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] alone | nothing | **invent** a new key for each request |
//! | `path`, a field of the body, a user name in a handler | nothing | **name** any other client's key |
//! | [`global`] | all clients share one key | spend all tokens |
//!
//! Combining extractors does not help. If one key of a pair is invented, the pair is also a new key, so
//! `bearer().and(client_ip())` admits any number of requests from one address. In `bearer().or(client_ip())`, any token
//! bypasses the per-address limit. Do this instead:
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
