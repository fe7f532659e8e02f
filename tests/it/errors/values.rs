//! Errors of constructors that return a `Result`.

use std::time::Duration;

use tollgate::{DAY, Key, MINUTE, Policy, Quota, SECOND, WEEK, key, policy::PolicyName, protection::DenyRule};

use super::list::List;

pub(crate) fn quotas(list: &mut List) {
    list.section("Quotas: QuotaError");
    let (max, nanos) = (Quota::MAX_TOKENS, Duration::from_nanos(1500));
    list.error("a rate of 0", Quota::try_token_bucket(0, MINUTE));
    list.error("too large a rate", Quota::try_fixed_window(max + 1, MINUTE));
    list.error("a period of 0", Quota::try_token_bucket(1, Duration::ZERO));
    list.error("too long a period", Quota::try_sliding_window(1, Quota::MAX_PERIOD + SECOND));
    list.error("a period with nanoseconds", Quota::try_token_bucket(1, nanos));
    list.error("too large a capacity", Quota::token_bucket(1, SECOND).try_capacity(max + 1));
    list.error("a capacity that takes too long to refill", Quota::token_bucket(1, WEEK).try_capacity(max));
    list.error("a capacity of 0", tollgate::algorithm::validate(&Quota::token_bucket(10, MINUTE).capacity(0)));
    list.error("too many reservations", Quota::token_bucket(1, SECOND).try_max_reserved(max + 1));
    list.error("a max_reserved that takes too long to refill", Quota::fixed_window(1, DAY).try_max_reserved(max));
    list.error("a sliding window with a capacity", Quota::sliding_window(10, MINUTE).try_capacity(20));
    list.error("a sliding window with reservations", Quota::sliding_window(10, MINUTE).try_max_reserved(5));
    list.error(
        "a sliding window with unlimited reservations",
        Quota::sliding_window(10, MINUTE).try_unlimited_reservations(),
    );
    list.error("a start with nanoseconds", Quota::fixed_window(10, DAY).try_start(nanos));
}

pub(crate) fn texts_of_quotas(list: &mut List) {
    list.section("Quotas as text: ParseQuotaError");
    for text in [
        "",
        "100",
        "ten/min",
        "-1/min",
        "10/",
        "10/fortnight",
        "10/min bursts 20",
        "10/min burst",
        "10/min burst 20 burst 30",
        "10/min fixed sliding",
        "10/min reserve some",
        "10/min start 5",
        "0/min",
        "10/min burst 0",
        "10/min sliding burst 20",
    ] {
        list.error(&format!("{text:?}"), text.parse::<Quota>());
    }
}

pub(crate) fn policies(list: &mut List) {
    list.section("Policies: PolicyError");
    let (ten_per_minute, no_capacity) = (Quota::token_bucket(10, MINUTE), Quota::token_bucket(10, MINUTE).capacity(0));
    let api = || Policy::new("api", ten_per_minute);
    list.error("an empty name", PolicyName::try_new(""));
    list.error("a name with two lines", Policy::try_new("two\nlines", ten_per_minute));
    list.error("too long a name", Policy::try_new("n".repeat(200), ten_per_minute));
    list.error("a quota that refuses everything", Policy::try_new("api", no_capacity));
    list.error("a tier with such a quota", api().try_tier("free", no_capacity));
    list.error("a tier with a different algorithm", api().try_tier("free", Quota::sliding_window(10, MINUTE)));
    list.error("a duplicate tier", api().tier("free", ten_per_minute).try_tier("free", ten_per_minute));
}

pub(crate) fn deny_rules_and_networks(list: &mut List) {
    list.section("Deny lists and networks: DenyRuleError, CidrError, ParseKeyError");
    list.error("a prefix that is too long", DenyRule::network("10.0.0.0/33"));
    list.error("a host name as a network", key::client_ip().try_trust(["10.0.0.0/8", "proxy.example.com"]));
    list.error("a network with host bits", DenyRule::network("192.0.2.7/24"));
    list.error("a string key without quotes", "sk_leaked".parse::<Key>());
    list.error("a tuple without a comma", "(7)".parse::<Key>());
    list.error("an empty user agent", DenyRule::user_agent(""));
    list.error("a pattern for all user agents", DenyRule::user_agent("*"));
    list.error("a country name instead of a code", DenyRule::country("Germany"));
    list.error("a label without a name", DenyRule::label("", "64496"));
    list.error("a label without a value", DenyRule::label("asn", ""));
    list.error("a label that is too long", DenyRule::label("asn", &"x".repeat(300)));
}
