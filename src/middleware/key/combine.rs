//! Combinators for key extractors.

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::{Extraction, Found, KeyError, KeyExtractor};
use crate::policy::{Key, KeyFault, Subject};

/// The extractor returned by [`KeyExtractor::or`]. See [`KeyExtractor`] for an example.
#[derive(Clone, Debug)]
pub struct Or<A, B>(pub(super) A, pub(super) Arc<B>);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match self.0.extract(parts) {
            Extraction::Now(found) if is_anonymous(&found) => self.1.extract(parts),
            Extraction::Later(first) => {
                // Only `extract` can borrow the request, so create this future now, whether or not it will be needed.
                let second = self.1.extract(parts);
                Extraction::later(async move {
                    let found = first.await;
                    if is_anonymous(&found) { second.found().await } else { found }
                })
            }
            found => found,
        }
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.0.address(parts).or_else(|| self.1.address(parts))
    }

    fn can_find(&self, key: &Key) -> bool {
        let both = *key == Key::anonymous();
        if both { self.0.can_find(key) && self.1.can_find(key) } else { self.0.can_find(key) || self.1.can_find(key) }
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        self.0.missing_extension(parts).or_else(|| self.1.missing_extension(parts))
    }
}

/// The extractor returned by [`KeyExtractor::and`]. See [`KeyExtractor`] for an example.
#[derive(Clone, Debug)]
pub struct And<A, B>(pub(super) A, pub(super) B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for And<A, B> {
    fn extract(&self, parts: &Parts) -> Extraction {
        match (self.0.extract(parts), self.1.extract(parts)) {
            (Extraction::Now(first), Extraction::Now(second)) => Extraction::Now(both(first, second)),
            (first, second) => Extraction::later(async move { both(first.found().await, second.found().await) }),
        }
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.0.address(parts).or_else(|| self.1.address(parts))
    }

    fn can_find(&self, key: &Key) -> bool {
        // A caller that lacks either key is anonymous. Deny lists also match credentials within a pair.
        if *key == Key::anonymous() || key.source().is_some() {
            return self.0.can_find(key) || self.1.can_find(key);
        }
        key.pair().is_some_and(|(first, second)| self.0.can_find(&first) && self.1.can_find(&second))
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        self.0.missing_extension(parts).or_else(|| self.1.missing_extension(parts))
    }
}

/// The extractor returned by [`KeyExtractor::map`]. See [`KeyExtractor`] for an example.
#[derive(Clone, Debug)]
pub struct Map<A, F>(pub(super) A, pub(super) Arc<F>);

impl<A, F> KeyExtractor for Map<A, F>
where
    A: KeyExtractor,
    F: Fn(Subject) -> Subject + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Extraction {
        let change = Arc::clone(&self.1);
        self.0.extract(parts).then(move |found| match found {
            Found::Subject(subject) => Found::Subject(change(subject)),
            other => other,
        })
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.0.address(parts)
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        self.0.missing_extension(parts)
    }
}

/// The extractor returned by [`KeyExtractor::or_reject`]. See [`KeyExtractor`] for an example.
#[derive(Clone, Debug)]
pub struct OrReject<A>(pub(super) A);

impl<A: KeyExtractor> KeyExtractor for OrReject<A> {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.0.extract(parts).then(|found| {
            if !is_anonymous(&found) {
                return found;
            }
            let error = KeyError::new("the request must identify its caller");
            Found::Refuse(error.with_status(StatusCode::BAD_REQUEST).with_fault(KeyFault::Anonymous))
        })
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.0.address(parts)
    }

    fn can_find(&self, key: &Key) -> bool {
        *key != Key::anonymous() && self.0.can_find(key)
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        self.0.missing_extension(parts)
    }
}

/// The extractor returned by [`KeyExtractor::or_skip`]. See [`KeyExtractor`] for an example.
#[derive(Clone, Debug)]
pub struct OrSkip<A>(pub(super) A);

impl<A: KeyExtractor> KeyExtractor for OrSkip<A> {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.0.extract(parts).then(|found| if is_anonymous(&found) { Found::Skip } else { found })
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.0.address(parts)
    }

    fn can_find(&self, key: &Key) -> bool {
        *key != Key::anonymous() && self.0.can_find(key)
    }

    fn missing_extension(&self, parts: &Parts) -> Option<&'static str> {
        self.0.missing_extension(parts)
    }
}

fn is_anonymous(found: &Found) -> bool {
    matches!(found, Found::Subject(subject) if subject.key().is_none())
}

fn both(first: Found, second: Found) -> Found {
    match (first, second) {
        (Found::Refuse(error), _) | (_, Found::Refuse(error)) => Found::Refuse(error),
        (Found::Skip, _) | (_, Found::Skip) => Found::Skip,
        (Found::Subject(first), Found::Subject(second)) => {
            let Some((a, b)) = first.key().zip(second.key()) else {
                // The tier and the quotas are dropped, since all callers that lack a key share the anonymous row.
                return Found::Subject(Subject::anonymous());
            };
            let subject = Subject::new((a, b));
            let subject = match first.quotas().or(second.quotas()) {
                Some(quotas) => subject.quota(*quotas),
                None => subject,
            };
            Found::Subject(match first.tier_name().or(second.tier_name()) {
                Some(tier) => subject.tier(tier.to_owned()),
                None => subject,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn find(extractor: impl KeyExtractor) -> Found {
        let parts = http::Request::new(()).into_parts().0;
        match pin!(extractor.extract(&parts).found()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => panic!("the extractor's future must be ready immediately"),
        }
    }

    fn key(extractor: impl KeyExtractor) -> Option<Key> {
        match find(extractor) {
            Found::Subject(subject) => subject.key().cloned(),
            other => panic!("{other:?}"),
        }
    }

    fn later(answer: Option<u64>) -> impl KeyExtractor {
        move |_: &Parts| Extraction::later(async move { answer })
    }

    fn now(answer: Option<u64>) -> impl KeyExtractor {
        move |_: &Parts| answer
    }

    #[test]
    fn or_reject_and_or_skip_change_only_the_handling_of_anonymous_callers() {
        use crate::middleware::key::{bearer, extension};
        let keys = [Key::anonymous(), bearer().key("token"), Key::global()];
        assert_eq!(keys.each_ref().map(|key| bearer().can_find(key)), [true, true, false]);
        assert_eq!(keys.each_ref().map(|key| bearer().or_reject().can_find(key)), [false, true, false]);
        assert_eq!(keys.each_ref().map(|key| bearer().or_skip().can_find(key)), [false, true, false]);

        let (user, parts) = (|| extension(|user: &u64| Key::from(*user)), http::Request::new(()).into_parts().0);
        assert_eq!(user().missing_extension(&parts), Some("u64"));
        assert_eq!(user().or_reject().missing_extension(&parts), Some("u64"));
        assert_eq!(user().or_skip().missing_extension(&parts), Some("u64"));
        assert_eq!(bearer().or_reject().missing_extension(&parts), None);
    }

    #[test]
    fn or_uses_the_second_extractor_only_if_the_first_finds_no_key() {
        for (first, second, found) in
            [(Some(1), Some(2), Some(1)), (None, Some(2), Some(2)), (None, None, None), (Some(1), None, Some(1))]
        {
            let found = found.map(Key::from);
            assert_eq!(key(now(first).or(now(second))), found);
            assert_eq!(key(later(first).or(now(second))), found);
            assert_eq!(key(now(first).or(later(second))), found);
            assert_eq!(key(later(first).or(later(second))), found);
        }
    }

    #[test]
    fn and_requires_both_keys() {
        for (first, second) in [(Some(1), Some(2)), (None, Some(2)), (Some(1), None)] {
            let found = first.zip(second).map(|pair| Key::from((Key::from(pair.0), Key::from(pair.1))));
            assert_eq!(key(now(first).and(now(second))), found);
            assert_eq!(key(later(first).and(now(second))), found);
            assert_eq!(key(now(first).and(later(second))), found);
        }
        assert_ne!(key(now(Some(1)).and(now(Some(2)))), key(now(Some(2)).and(now(Some(1)))));
    }

    #[test]
    fn combinators_forward_the_address_of_either_extractor() {
        let parts = {
            let mut parts = http::Request::new(()).into_parts().0;
            parts.extensions.insert(super::super::PeerAddr(([192, 0, 2, 1], 4711).into()));
            parts
        };
        let ip = super::super::client_ip;
        let anonymous = || now(None);
        for (extractor, found) in [
            (Box::new(ip().or(anonymous())) as Box<dyn KeyExtractor>, true),
            (Box::new(anonymous().or(ip())), true),
            (Box::new(ip().and(anonymous())), true),
            (Box::new(anonymous().and(ip())), true),
            (Box::new(ip().map(|subject| subject)), true),
            (Box::new(ip().or_reject()), true),
            (Box::new(ip().or_skip()), true),
            (
                Box::new(anonymous().or(anonymous()).and(anonymous()).or_skip().or_reject().map(|subject| subject)),
                false,
            ),
        ] {
            assert_eq!(extractor.address(&parts), found.then_some([192, 0, 2, 1].into()));
        }
    }

    #[test]
    fn combinators_keep_the_tier() {
        let tiered = |_: &Parts| Subject::new(1).tier("pro");
        for found in
            [find(tiered.and(now(Some(2)))), find(now(Some(2)).and(tiered)), find(now(Some(1)).map(|s| s.tier("pro")))]
        {
            assert!(matches!(found, Found::Subject(subject) if subject.tier_name() == Some("pro")));
        }
    }

    #[test]
    fn a_pair_with_a_missing_key_has_no_tier() {
        let tiered = |_: &Parts| Subject::new(1).tier("pro");
        let Found::Subject(subject) = find(tiered.and(now(None))) else { panic!() };
        assert_eq!(subject, Subject::anonymous());
    }

    #[test]
    fn anonymous_callers_are_rejected_or_skipped() {
        assert!(matches!(find(now(None).or_skip()), Found::Skip));
        assert!(matches!(find(later(None).or_skip()), Found::Skip));
        assert!(matches!(find(later(None).or_reject()), Found::Refuse(error) if error.status() == 400));
        assert_eq!(key(now(Some(1)).or_reject()), Some(Key::from(1)));
        assert!(matches!(find(now(None).or_reject().or(now(Some(1)))), Found::Refuse(_)));
    }
}
