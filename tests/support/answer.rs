//! A strict parser for responses.

use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use axum::response::Response;
use http_body_util::BodyExt;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let end =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("expected the end of the header section");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").expect("expected a status line");
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").expect("expected a header line");
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        Answer { status: status[..3].parse().unwrap(), headers, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) async fn read(response: Response) -> Answer {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Returns the name, `q` and `w` of each item in `RateLimit-Policy`.
    pub(crate) fn policies(&self) -> Vec<(String, u64, u64)> {
        let items = self.items("ratelimit-policy").into_iter();
        items
            .map(|(name, parameters)| match parameters[..] {
                [('q', q), ('w', w)] => (name, q, w),
                _ => panic!("{name:?} has unexpected parameters {parameters:?}"),
            })
            .collect()
    }

    /// Returns the name, `r` and `t` of each item in `RateLimit`.
    pub(crate) fn limits(&self) -> Vec<(String, u64, Option<u64>)> {
        let items = self.items("ratelimit").into_iter();
        items
            .map(|(name, parameters)| match parameters[..] {
                [('r', r), ('t', t)] => (name, r, Some(t)),
                [('r', r)] => (name, r, None),
                _ => panic!("{name:?} has unexpected parameters {parameters:?}"),
            })
            .collect()
    }

    /// Returns the value of `Retry-After`, which must be in whole seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let value = self.headers.get(RETRY_AFTER)?.to_str().unwrap();
        assert_eq!(self.headers.get_all(RETRY_AFTER).iter().count(), 1);
        Some(value.parse().unwrap())
    }

    /// Returns the body as a problem document (RFC 9457), whose status must match the status line.
    pub(crate) fn problem(&self) -> serde_json::Value {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status);
        problem
    }

    pub(crate) fn violated_policies(&self) -> Vec<String> {
        serde_json::from_value(self.problem()["violated-policies"].clone()).unwrap()
    }

    /// Parses all lines of a field as one list of strings with integer parameters (draft-11, sections 3 and 4).
    fn items(&self, field: &str) -> Vec<(String, Vec<(char, u64)>)> {
        let lines: Vec<_> = self.headers.get_all(field).iter().map(|line| line.to_str().unwrap()).collect();
        let list: sfv::List = sfv::Parser::new(&lines.join(", ")).parse().unwrap();
        list.iter()
            .map(|entry| {
                let sfv::ListEntry::Item(item) = entry else { panic!("unexpected inner list in {lines:?}") };
                let name = item.bare_item.as_string().expect("expected a string").as_str().to_owned();
                let parameters = item.params.iter().map(|(key, value)| {
                    let value = i64::from(value.as_integer().expect("expected an integer"));
                    (key.as_str().parse().expect("expected a one-letter parameter name"), u64::try_from(value).unwrap())
                });
                (name, parameters.collect())
            })
            .collect()
    }
}
