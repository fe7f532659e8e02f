//! Keys from requests: the extractor trait, and the extractors that come with the crate.
//!
//! | who | extractor |
//! | --- | --- |
//! | whatever your own code knows | a closure over the request's parts |
//! | a user or session put there by authentication | [`extension`] |
//! | the address at the other end | [`client_ip`], behind proxies [`ClientIp::trust`] |
//! | a credential | [`bearer`], [`header`], [`cookie`] |
//! | a part of the route | `path` (feature `axum`) |
//! | everybody together | [`global`] |
//! | the server that a client sends to | [`host`] |
//! | anything that axum can extract | `from_extractor` (feature `axum`) |
//!
//! They combine: [`or`](KeyExtractor::or) the next if this one finds nobody, [`and`](KeyExtractor::and) both as one
//! key, [`map`](KeyExtractor::map) what was found. A caller without a key is anonymous, and all of those share one
//! bucket, unless the extractor says [`or_reject`](KeyExtractor::or_reject) or [`or_skip`](KeyExtractor::or_skip).
//!
//! # Which keys a client can invent
//!
//! A limit holds only if a client cannot choose its key. One that can invent keys has a full bucket for each of them, and
//! one that can name the key of another client can spend it, or have it [blocked](crate::protection::AutoBlock).
//!
//! | key | who vouches for it | a client can |
//! | --- | --- | --- |
//! | [`client_ip`], behind proxies with [`ClientIp::trust`] | the connection, or a proxy of yours | use the addresses that it has |
//! | [`extension`], if authentication put it there | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] inside of a layer that checked the credential and refused others | your code | log in |
//! | [`bearer`], [`header`], [`cookie`] by themselves | nothing | **invent** a new one for each request |
//! | `path`, a field of the body, a user name in a handler | nothing | **name** any of them |
//! | [`global`] | nothing to choose | spend it for everybody |
//!
//! [`and`](KeyExtractor::and) does not help: a pair with an invented half is an invented key. `bearer().and(client_ip())`
//! admits any number of requests from one address. [`or`](KeyExtractor::or) does not help either: a client that sends any
//! header gets past the address. What helps:
//!
//! - Check the credential in a layer outside of the limiter, and count by what that layer found:
//!   `extension(|user: &User| user.id).or(client_ip())`.
//! - Where it can be checked only inside, limit by address as well, by a rule of its own:
//!   `RateLimitLayer::new(PER_TOKEN, bearer().or_skip()).and(PER_ADDRESS, client_ip())`. A request has to pass both.
//! - Count attempts on an account by account *and* address, as
//!   [limits turned against others](crate::docs::limitations#limits-turned-against-others) shows, and block by address alone
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
