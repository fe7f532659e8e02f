//! Keys from the destination host of a request, for layers around HTTP clients.

use http::Uri;
use http::request::Parts;

use super::{Extraction, KeyExtractor};
use crate::policy::Key;

/// Uses the host and port in the request's URI as the key. Use this in a layer around an HTTP client to limit the
/// requests to each server separately. See [`docs::outgoing`](crate::docs::outgoing) for an example.
///
/// The key is a pair such as `("host", "api.example.com:443")`. The host is in lower case, and the port defaults to
/// that of the scheme. There is no key if the URI has no host. Do not use this key on a server: clients choose the
/// host, and the URIs of most HTTP/1.1 requests have none.
pub fn host() -> Host {
    Host
}

/// The extractor returned by [`host`].
#[derive(Clone, Copy, Debug)]
pub struct Host;

impl KeyExtractor for Host {
    fn extract(&self, parts: &Parts) -> Extraction {
        server(&parts.uri).map(|server| Key::from(("host", server.as_bytes()))).into()
    }
}

fn server(uri: &Uri) -> Option<String> {
    let host = uri.host()?.to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_host_yield_the_same_key() {
        for (uri, expected) in [
            ("http://api.example.com/a?b=c", Some("api.example.com:80")),
            ("http://API.Example.com:80/", Some("api.example.com:80")),
            ("http://ada:s3cr3t@api.example.com/", Some("api.example.com:80")),
            ("https://api.example.com", Some("api.example.com:443")),
            ("https://api.example.com:8443/", Some("api.example.com:8443")),
            ("http://[2001:DB8::1]:3000/", Some("[2001:db8::1]:3000")),
            ("/path", None),
        ] {
            assert_eq!(server(&uri.parse().expect("a URI")).as_deref(), expected, "{uri}");
        }
    }
}
