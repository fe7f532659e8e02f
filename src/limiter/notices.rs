//! The notices that limiters on a shared backend exchange: policy changes, blocks and pauses.

use std::sync::Arc;
use std::time::Duration;

use super::overrides::{Override, QuotaScope, Setting};
use crate::backend::Notice;
use crate::policy::{Digest, Enforce, PolicyName};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoticeContent {
    Override(Override),
    /// An automatic block, its duration and the number of consecutive blocks, or `None` if the block has ended.
    Block(Digest, Option<(Duration, u32)>),
    /// A manual block and its duration, or `None` if the block has ended.
    ManualBlock(Digest, Option<Duration>),
    /// A pause of a row and its duration, or `None` if the pause has ended.
    Pause(Digest, Option<Duration>),
}

impl NoticeContent {
    pub(super) fn to_notice(&self) -> Notice {
        match self {
            NoticeContent::Override(Override { policy, setting }) => {
                let (topic, text) = match setting {
                    Setting::Quotas(scope, quotas) => {
                        let scope = match scope {
                            QuotaScope::All => String::new(),
                            QuotaScope::Tier(tier) => format!("\0tier\0{tier}"),
                            QuotaScope::Key(key) => format!("\0key\0{:032x}", key.to_bits()),
                        };
                        // The tier comes last because, unlike a policy's name, it can contain a NUL.
                        (format!("quota\0{policy}{scope}"), quotas.as_ref().map(|quotas| quotas.to_string()))
                    }
                    Setting::Enforcement(enforce) => {
                        (format!("enforce\0{policy}"), enforce.map(|enforce| enforce.share().to_string()))
                    }
                    Setting::Generation(generation) => {
                        (format!("generation\0{policy}"), generation.map(|generation| format!("{generation:x}")))
                    }
                };
                Notice { topic: topic.into(), text, lasts: None, age: Duration::ZERO }
            }
            NoticeContent::Block(id, block) => Notice {
                topic: format!("block\0{:032x}", id.to_bits()).into(),
                text: block.map(|(_, times)| times.to_string()),
                lasts: block.map(|(lasts, _)| lasts),
                age: Duration::ZERO,
            },
            NoticeContent::ManualBlock(id, lasts) => lasting("hold", id, lasts),
            NoticeContent::Pause(row, lasts) => lasting("pause", row, lasts),
        }
    }

    /// Returns `None` if the notice cannot be parsed, for example because a different version of the crate published
    /// it.
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
                Some(NoticeContent::Override(Override { policy, setting: Setting::Quotas(scope, quotas) }))
            }
            ("enforce", policy) => {
                let share = |text: &str| Enforce::of_share(text.parse().ok()?);
                let setting = Setting::Enforcement(optional(notice, share)?);
                Some(NoticeContent::Override(Override { policy: PolicyName::try_new(policy).ok()?, setting }))
            }
            ("generation", policy) => {
                let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|number| *number > 0);
                let setting = Setting::Generation(optional(notice, number)?);
                Some(NoticeContent::Override(Override { policy: PolicyName::try_new(policy).ok()?, setting }))
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

/// Parses a notice's text. Returns `Some(None)` if the notice withdraws a setting, and `None` if the text is invalid.
fn optional<T>(notice: &Notice, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match notice.text.as_deref() {
        Some(text) => parse(text).map(Some),
        None => Some(None),
    }
}

/// Creates a notice about a block or a pause, which has ended if `lasts` is `None`.
fn lasting(kind: &str, id: &Digest, lasts: &Option<Duration>) -> Notice {
    let topic = format!("{kind}\0{:032x}", id.to_bits());
    Notice { topic: topic.into(), text: lasts.map(|_| String::new()), lasts: *lasts, age: Duration::ZERO }
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
        let mut settings = Vec::new();
        for scope in
            [QuotaScope::All, QuotaScope::Tier("free\0key\0".into()), QuotaScope::Key(Digest::from_bits(u128::MAX - 5))]
        {
            for quotas in [Some(list), Some(long.into()), None] {
                settings.push(Setting::Quotas(scope.clone(), quotas.map(Arc::new)));
            }
        }
        settings.extend([None, Some(Enforce::Never), Some(Enforce::Share(0.1))].map(Setting::Enforcement));
        settings.extend([None, Some(1), Some(u64::MAX)].map(Setting::Generation));
        for setting in settings {
            let content = NoticeContent::Override(Override { policy: policy.clone(), setting });
            assert_eq!(NoticeContent::parse(&content.to_notice()), Some(content));
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
    fn notices_from_other_versions_are_ignored() {
        let notice = |topic: &str, text: &str| Notice {
            topic: topic.into(),
            text: Some(text.into()),
            lasts: None,
            age: Duration::ZERO,
        };
        for notice in [
            notice("quota\0api", "10 a blue moon"),
            notice("quota\0api\0region\0eu", "10/min"),
            notice("quota\0api\0key\0xyz", "10/min"),
            notice("quota\0caf\u{e9}", "10/min"),
            notice("weather\0api", "10/min"),
            notice("enforce\0api", "1.5"),
            notice("generation\0api", "0"),
            notice("quota", "10/min"),
            Notice { topic: vec![0xff], text: None, lasts: None, age: Duration::ZERO },
        ] {
            assert_eq!(NoticeContent::parse(&notice), None, "{notice:?}");
        }
    }
}
