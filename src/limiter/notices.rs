//! The notices that limiters on one backend exchange: set quotas, blocks and pauses.

use std::sync::Arc;
use std::time::Duration;

use super::overrides::{Override, QuotaScope};
use crate::backend::Notice;
use crate::policy::{Digest, PolicyName};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoticeContent {
    Quota(Override),
    /// An automatic block, with its length and its position among successive blocks; `None` if the block ended.
    Block(Digest, Option<(Duration, u32)>),
    /// A manual block and its length; `None` if the block ended.
    ManualBlock(Digest, Option<Duration>),
    /// A pause of a row and its length; `None` if the pause ended.
    Pause(Digest, Option<Duration>),
}

impl NoticeContent {
    pub(super) fn to_notice(&self) -> Notice {
        match self {
            NoticeContent::Quota(Override { policy, scope, quotas }) => {
                let scope = match scope {
                    QuotaScope::All => String::new(),
                    QuotaScope::Tier(tier) => format!("\0tier\0{tier}"),
                    QuotaScope::Key(key) => format!("\0key\0{:032x}", key.to_bits()),
                };
                // The tier comes last: unlike a policy's name, it may contain a NUL.
                let topic = format!("quota\0{policy}{scope}");
                Notice { topic: topic.into(), text: quotas.as_ref().map(|quotas| quotas.to_string()), lasts: None }
            }
            NoticeContent::Block(id, block) => Notice {
                topic: format!("block\0{:032x}", id.to_bits()).into(),
                text: block.map(|(_, times)| times.to_string()),
                lasts: block.map(|(lasts, _)| lasts),
            },
            NoticeContent::ManualBlock(id, lasts) => lasting("hold", id, lasts),
            NoticeContent::Pause(row, lasts) => lasting("pause", row, lasts),
        }
    }

    /// Returns `None` if the notice comes from another version of the crate and cannot be parsed.
    pub(super) fn parse(notice: &Notice) -> Option<NoticeContent> {
        let topic = std::str::from_utf8(&notice.topic).ok()?;
        let digest = |text: &str| u128::from_str_radix(text, 16).ok().map(Digest::from_bits);
        match topic.split_once('\0')? {
            ("quota", rest) => {
                let mut parts = rest.splitn(3, '\0');
                let policy = PolicyName::try_new(parts.next()?).ok()?;
                let scope = match (parts.next(), parts.next()) {
                    (None, _) => QuotaScope::All,
                    (Some("tier"), Some(tier)) => QuotaScope::Tier(tier.to_owned()),
                    (Some("key"), Some(key)) => QuotaScope::Key(digest(key)?),
                    _ => return None,
                };
                let quotas = notice.text.as_deref().map(str::parse).transpose().ok()?.map(Arc::new);
                Some(NoticeContent::Quota(Override { policy, scope, quotas }))
            }
            ("block", id) => {
                let times = notice.text.as_ref().and_then(|times| times.parse().ok());
                Some(NoticeContent::Block(digest(id)?, notice.lasts.zip(times)))
            }
            ("hold", id) => Some(NoticeContent::ManualBlock(digest(id)?, notice.text.as_ref().and(notice.lasts))),
            ("pause", row) => Some(NoticeContent::Pause(digest(row)?, notice.text.as_ref().and(notice.lasts))),
            _ => None,
        }
    }
}

/// Creates a notice about a digest. Without a length, the notice is a withdrawal.
fn lasting(kind: &str, id: &Digest, lasts: &Option<Duration>) -> Notice {
    let topic = format!("{kind}\0{:032x}", id.to_bits());
    Notice { topic: topic.into(), text: lasts.map(|_| String::new()), lasts: *lasts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{DAY, HOUR, Quota};
    use crate::policy::Quotas;

    #[test]
    fn notices_survive_a_round_trip() {
        let policy = PolicyName::new("a policy: \"x\"");
        let long = Quota::fixed_window(10, DAY).capacity(30).unlimited_reservations().start(7 * HOUR);
        let list: Quotas = long.and(Quota::per_second(5));
        for scope in
            [QuotaScope::All, QuotaScope::Tier("free\0key\0".into()), QuotaScope::Key(Digest::from_bits(u128::MAX - 5))]
        {
            for quotas in [Some(list), Some(long.into()), None] {
                let quotas = quotas.map(Arc::new);
                let content = NoticeContent::Quota(Override { policy: policy.clone(), scope: scope.clone(), quotas });
                assert_eq!(NoticeContent::parse(&content.to_notice()), Some(content));
            }
        }
        for lasts in [Some(DAY), None] {
            let id = Digest::from_bits(7);
            for content in [
                NoticeContent::Block(id, lasts.map(|lasts| (lasts, 3))),
                NoticeContent::ManualBlock(id, lasts),
                NoticeContent::Pause(id, lasts),
            ] {
                assert_eq!(NoticeContent::parse(&content.to_notice()), Some(content));
            }
        }
    }

    #[test]
    fn notices_of_other_versions_are_ignored() {
        let notice = |topic: &str, text: &str| Notice { topic: topic.into(), text: Some(text.into()), lasts: None };
        for notice in [
            notice("quota\0api", "10 a blue moon"),
            notice("quota\0api\0region\0eu", "10/min"),
            notice("quota\0api\0key\0xyz", "10/min"),
            notice("quota\0caf\u{e9}", "10/min"),
            notice("weather\0api", "10/min"),
            notice("quota", "10/min"),
            Notice { topic: vec![0xff], text: None, lasts: None },
        ] {
            assert_eq!(NoticeContent::parse(&notice), None, "{notice:?}");
        }
    }
}
