//! A request that is still whole.

use http::{Extensions, HeaderMap};

use crate::policy::{Digest, Key, Secret};

/// What a key is mostly found in, of a request that is not taken apart yet, and how the limiter hashes keys. To take a
/// request apart and put it together again moves 450 bytes, which costs a third of what deciding does.
///
/// Public only since a [`KeyExtractor`](super::KeyExtractor) is told it: nobody else can make one, or read it.
#[allow(missing_debug_implementations)]
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub(in super::super) headers: &'a HeaderMap,
    pub(in super::super) extensions: &'a Extensions,
    pub(in super::super) hash: &'a Secret,
}

impl Head<'_> {
    #[inline(always)]
    pub(super) fn digest(&self, key: &Key) -> Digest {
        self.hash.digest(key)
    }
}

#[cfg(test)]
mod tests {
    use http::request::Parts;
    use proptest::prelude::*;

    use super::super::{Extraction, Found, KeyExtractor, PeerAddr, bearer, client_ip, global, header};
    use super::*;

    /// Every extractor that can tell at once, and some that cannot.
    fn extractors() -> Vec<Box<dyn KeyExtractor>> {
        let by_key = || header("x-api-key");
        vec![
            Box::new(global()),
            Box::new(bearer()),
            Box::new(by_key()),
            Box::new(by_key().or(client_ip())),
            Box::new(by_key().or_reject()),
            Box::new(by_key().or_skip()),
            Box::new(by_key().and(bearer())),
            Box::new(by_key().map(|subject| subject.tier("paid"))),
            Box::new(client_ip()),
            Box::new(client_ip().prefixes(24, 48)),
            Box::new(client_ip().trust(["10.0.0.0/8"])),
            Box::new(client_ip().trust_hops(1).from_forwarded()),
            Box::new(client_ip().from_header("x-real-ip")),
            Box::new(|req: &Parts| req.headers.get("x-api-key").map(Key::from)),
        ]
    }

    fn parts() -> impl Strategy<Value = Parts> {
        let value = |texts: &'static [&'static str]| proptest::option::of(proptest::sample::select(texts));
        let peer = value(&["10.0.0.1", "192.0.2.7", "255.255.255.255", "::ffff:10.0.0.1", "2001:db8::1"]);
        let headers = (
            value(&["Bearer token", "bearer  token", "Bearer ", "Basic token"]),
            value(&["k1", " k1 ", "", "a-longer-key-than-is-kept-in-few-words-of-which-there-are-eight-only"]),
            value(&["203.0.113.9", "203.0.113.9, 10.0.0.2", "unknown"]),
            value(&["for=203.0.113.9", "for=_hidden"]),
            value(&["203.0.113.9"]),
            any::<bool>(),
        );
        (peer, headers).prop_map(|(peer, (authorization, api_key, forwarded_for, forwarded, real_ip, twice))| {
            let mut request = http::Request::builder();
            for (name, value) in [
                ("authorization", authorization),
                ("x-api-key", api_key),
                ("x-api-key", api_key.filter(|_| twice)),
                ("x-forwarded-for", forwarded_for),
                ("forwarded", forwarded),
                ("x-real-ip", real_ip),
            ] {
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
            let mut parts = request.body(()).expect("a request").into_parts().0;
            if let Some(peer) = peer {
                parts.extensions.insert(PeerAddr((peer.parse::<std::net::IpAddr>().expect("an address"), 1).into()));
            }
            parts
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn what_is_told_at_once_is_what_is_extracted(parts in parts()) {
            let hash = Secret::random();
            let head = Head { headers: &parts.headers, extensions: &parts.extensions, hash: &hash };
            let mut told = 0;
            for (i, extractor) in extractors().iter().enumerate() {
                let Some(digest) = extractor.at_once(head) else { continue };
                told += 1;
                match extractor.extract(&parts) {
                    Extraction::Now(Found::Subject(subject)) => {
                        prop_assert_eq!(subject.key().map(|key| hash.digest(key)), Some(digest), "extractor {}", i);
                        prop_assert_eq!(subject.tier_name(), None, "extractor {}", i);
                    }
                    other => prop_assert!(false, "extractor {} told a key at once, and extracts {:?}", i, other),
                }
            }
            // Everybody; the peer, as it is and of a network, and whom proxies are believed to name; a header in four ways, a token.
            let has_peer = parts.extensions.get::<PeerAddr>().is_some();
            let mut api_keys = parts.headers.get_all("x-api-key").iter().map(|value| value.as_bytes().trim_ascii());
            let has_key = api_keys.next().is_some_and(|key| !key.is_empty()) && api_keys.next().is_none();
            let has_token = parts.headers.get("authorization").is_some_and(|value| value != "Bearer " && value != "Basic token");
            let least = 1 + 4 * usize::from(has_peer) + 4 * usize::from(has_key) + usize::from(has_token);
            prop_assert!(told >= least, "{} told", told);
        }
    }
}
