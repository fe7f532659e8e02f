//! What headers say of a policy: its items of the lists `RateLimit-Policy` and `RateLimit`, rendered once as far as
//! they stay the same.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;

use crate::algorithm::Quota;
use crate::policy::{Decision, Policy, PolicyName};

/// The items of a policy, one of each of its quotas.
#[derive(Clone)]
pub(super) struct PolicyItems(
    /// By the two numbers of `RateLimit-Policy`.
    Vec<(u64, Duration, Item)>,
);

/// The items of one quota of a policy. A clone of one that is kept for ever costs nothing: no count is changed, which
/// all threads would fight for at each response.
#[derive(Clone)]
pub(super) enum Item {
    Kept(&'static Rendered),
    Counted(Arc<Rendered>),
}

/// The items of one quota of a policy.
pub(super) struct Rendered {
    /// `"api";q=100;w=60`
    policy: HeaderValue,
    /// `"api";r=`
    begin: Box<[u8]>,
}

/// What a response is told of one policy. It is rendered when the response is there: it is short until then, and moved
/// some times.
pub(super) struct Told {
    item: Item,
    remaining: u64,
    /// Until that changes, if it is told.
    seconds: Option<u64>,
}

impl PolicyItems {
    pub(super) fn new(policy: &Policy) -> PolicyItems {
        let quotas = std::iter::once(policy.quota()).chain(policy.tiers().map(|(_, quota)| quota));
        PolicyItems(quotas.map(|quota| (quota.limit(), quota.window(), Item::kept(policy.name(), quota))).collect())
    }

    /// A quota's. One that was set at run time is rendered each time.
    fn of(&self, name: &PolicyName, quota: &Quota) -> Item {
        let known = self.number_of(quota).and_then(|number| self.numbered(number)).cloned();
        known.unwrap_or_else(|| Item::counted(name, quota))
    }

    /// Which of the items is a quota's.
    #[inline(always)]
    pub(super) fn number_of(&self, quota: &Quota) -> Option<usize> {
        let (limit, window) = (quota.limit(), quota.window());
        self.0.iter().position(|known| (known.0, known.1) == (limit, window))
    }

    pub(super) fn numbered(&self, number: usize) -> Option<&Item> {
        self.0.get(number).map(|(_, _, item)| item)
    }
}

impl Item {
    /// Rendered now, and dropped after use.
    fn counted(name: &PolicyName, quota: &Quota) -> Item {
        Item::Counted(Arc::new(Rendered { policy: policy_item(name, quota), begin: limit_begin(name) }))
    }

    /// Rendered once and kept for ever, unless there are too many.
    fn kept(name: &PolicyName, quota: &Quota) -> Item {
        let policy = policy_item(name, quota);
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(policy.as_bytes()) {
            return Item::Kept(known);
        }
        match policy.to_str() {
            Ok(text) if kept.len() < MOST_KEPT => {
                let text: &'static str = Box::leak(text.into());
                let rendered = Rendered { policy: HeaderValue::from_static(text), begin: limit_begin(name) };
                let rendered: &'static Rendered = Box::leak(Box::new(rendered));
                kept.insert(text.as_bytes(), rendered);
                Item::Kept(rendered)
            }
            _ => Item::counted(name, quota),
        }
    }
}

impl Deref for Item {
    type Target = Rendered;

    #[inline(always)]
    fn deref(&self) -> &Rendered {
        match self {
            Item::Kept(rendered) => rendered,
            Item::Counted(rendered) => rendered,
        }
    }
}

impl Told {
    pub(super) fn new(item: Item, remaining: u64, window: Duration) -> Told {
        Told { item, remaining, seconds: Some(whole_seconds(window)) }
    }

    /// By a decision. `items`: those of its policy, if they are rendered.
    pub(super) fn of(decision: &Decision, items: Option<&PolicyItems>, tell_window: bool) -> Told {
        let (name, quota) = (decision.policy(), decision.quota());
        let item = items.map_or_else(|| Item::counted(name, quota), |items| items.of(name, quota));
        let (remaining, window) = decision.outlook().remaining_and_window();
        Told { item, remaining, seconds: tell_window.then(|| whole_seconds(window)) }
    }

    /// Of `RateLimit-Policy`.
    pub(super) fn policy(&self) -> HeaderValue {
        self.item.policy.clone()
    }

    /// Of `RateLimit`.
    pub(super) fn limit(&self) -> HeaderValue {
        self.item.limit(self.remaining, self.seconds)
    }
}

impl Rendered {
    /// Of `RateLimit`: what remains, and for how many seconds, if that is told.
    fn limit(&self, remaining: u64, seconds: Option<u64>) -> HeaderValue {
        // Zeros are written first, so no more of them than there may be letters.
        if self.begin.len() <= 32 {
            written(&mut [0; 32 + NUMBERS], &self.begin, remaining, seconds)
        } else {
            written(&mut [0; LONGEST_BEGIN + NUMBERS], &self.begin, remaining, seconds)
        }
    }
}

/// What is rendered of policies, by the item of `RateLimit-Policy`. A program has few, and they are never dropped.
static KEPT: LazyLock<Mutex<HashMap<&'static [u8], &'static Rendered>>> = LazyLock::new(Mutex::default);

/// A program that makes policies without end makes these, some 300 KiB, and counts the others.
const MOST_KEPT: usize = 1024;

/// `"api";q=100;w=60`
fn policy_item(name: &PolicyName, quota: &Quota) -> HeaderValue {
    let [mut limit, mut window] = [itoa::Buffer::new(), itoa::Buffer::new()];
    let window = digits(&mut window, whole_seconds(quota.window()));
    value(&[&quoted(name)[..], b";q=", digits(&mut limit, quota.limit()), b";w=", window].concat())
}

/// `"api";r=42;t=18`, put together in `place`.
#[inline(always)]
fn written(place: &mut [u8], begin: &[u8], remaining: u64, seconds: Option<u64>) -> HeaderValue {
    let mut buffer = itoa::Buffer::new();
    let mut length = 0;
    let mut put = |part: &[u8]| {
        if let Some(place) = place.get_mut(length..length + part.len()) {
            place.copy_from_slice(part);
            length += part.len();
        }
    };
    put(begin);
    put(digits(&mut buffer, remaining));
    if let Some(seconds) = seconds {
        put(b";t=");
        put(digits(&mut buffer, seconds));
    }
    value(place.get(..length).unwrap_or_default())
}

/// Of a name of escaped characters only.
const LONGEST_BEGIN: usize = 2 * PolicyName::MAX_LENGTH + "\"\";r=".len();
/// Two integers of 15 digits, and what is between them.
const NUMBERS: usize = 15 + ";t=".len() + 15;

/// `"api";r=`
fn limit_begin(name: &PolicyName) -> Box<[u8]> {
    [&quoted(name)[..], b";r="].concat().into()
}

/// A string of a structured field (RFC 9651, section 3.3.3).
fn quoted(name: &PolicyName) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in name.as_str().bytes() {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
    text
}

/// Seconds for a header: rounded up, since coming back early is coming back refused; at least 1, since 0 invites a
/// client to try again at once.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(up).clamp(1, Quota::MAX_TOKENS)
}

/// Of an integer of a structured field, which has at most 15 digits.
fn digits(buffer: &mut itoa::Buffer, number: u64) -> &[u8] {
    buffer.format(number.min(Quota::MAX_TOKENS)).as_bytes()
}

fn value(text: &[u8]) -> HeaderValue {
    // A policy's name has only printable ASCII characters; if that ever changed, no header is better than a panic.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static("\"\";q=0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, MINUTE};

    #[test]
    fn q_is_the_capacity_and_w_the_time_to_refill_it() {
        for (quota, text) in [
            (Quota::token_bucket(100, MINUTE), "\"api\";q=100;w=60"),
            (Quota::token_bucket(10, MINUTE).capacity(20), "\"api\";q=20;w=120"),
            (Quota::token_bucket(7, Duration::from_millis(1500)), "\"api\";q=7;w=2"),
            (Quota::token_bucket(1000, Duration::from_micros(1)), "\"api\";q=1000;w=1"),
            (Quota::fixed_window(1000, DAY), "\"api\";q=1000;w=86400"),
        ] {
            assert_eq!(policy_item(&PolicyName::new("api"), &quota), text);
        }
    }

    #[test]
    fn each_quota_has_an_item_that_is_rendered_once() {
        let (free, pro) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(100, MINUTE));
        let (name, items) = (PolicyName::new("api"), PolicyItems::new(&Policy::new("api", free).tier("pro", pro)));
        let again = PolicyItems::new(&Policy::new("api", free));
        for (quota, text) in [(free, "\"api\";q=10;w=60"), (pro, "\"api\";q=100;w=60")] {
            let item = items.of(&name, &quota);
            assert_eq!(item.policy, text);
            assert!(items.0.iter().any(|(_, _, known)| std::ptr::eq::<Rendered>(&**known, &*item)), "{text}: anew");
        }
        assert_eq!((items.number_of(&pro), again.number_of(&pro)), (Some(1), None));
        // One that came with an override is written when it is needed.
        let other = items.of(&name, &Quota::token_bucket(7, MINUTE));
        assert_eq!(
            (&other.policy, &other.limit(3, None)),
            (&"\"api\";q=7;w=60".parse().unwrap(), &"\"api\";r=3".parse().unwrap())
        );
        assert!(matches!(other, Item::Counted(_)));
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        for (micros, seconds) in [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (5_000_001, 6)] {
            assert_eq!(whole_seconds(Duration::from_micros(micros)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), Quota::MAX_TOKENS);
    }

    #[test]
    fn names_are_quoted_as_structured_strings() {
        let name = PolicyName::new("a\"b\\c");
        let item = policy_item(&name, &Quota::token_bucket(1, MINUTE));
        assert_eq!(item, r#""a\"b\\c";q=1;w=60"#);
        let list: sfv::List = sfv::Parser::new(item.as_bytes()).parse().unwrap();
        let sfv::ListEntry::Item(item) = &list[0] else { panic!() };
        assert_eq!(item.bare_item.as_string().map(|text| text.as_str()), Some(name.as_str()));
    }

    #[test]
    fn names_of_any_length_are_written_whole() {
        for length in [1, 26, 27, 28, 29, 127, 128] {
            for letter in ["a", "\\"] {
                let name = letter.repeat(length);
                let item =
                    Item::counted(&PolicyName::try_new(name.clone()).expect("a name"), &Quota::token_bucket(1, MINUTE));
                let name = name.replace('\\', "\\\\");
                assert_eq!(item.limit(u64::MAX, Some(u64::MAX)), format!("\"{name}\";r={0};t={0}", Quota::MAX_TOKENS));
                assert_eq!(item.limit(0, None), format!("\"{name}\";r=0"));
            }
        }
        assert_eq!(Quota::MAX_TOKENS.to_string().len(), 15, "what there is room for");
    }

    #[test]
    fn policies_without_end_are_not_kept_without_end() {
        let items: Vec<_> = (0..MOST_KEPT as u64 + 100)
            .map(|i| {
                (
                    i,
                    Item::kept(
                        &PolicyName::try_new(format!("tenant-{i}")).expect("a name"),
                        &Quota::token_bucket(i + 1, MINUTE),
                    ),
                )
            })
            .collect();
        for (i, item) in &items {
            assert_eq!(item.policy, format!("\"tenant-{i}\";q={};w=60", i + 1));
        }
        let kept = items.iter().filter(|(_, item)| matches!(item, Item::Kept(_))).count();
        assert!(kept <= MOST_KEPT && KEPT.lock().unwrap().len() == MOST_KEPT, "{kept}");
    }
}
