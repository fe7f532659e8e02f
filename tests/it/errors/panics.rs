//! Programming mistakes that cause a panic at startup or, in a `const`, a compile error.

use std::time::Duration;

use tollgate::backend::RedisBackend;
use tollgate::{
    FailureMode, MINUTE, Policy, Quota, RateLimitLayer, RouteLimits, Rule, SECOND, WEEK, key, policy::PolicyName,
    status,
};

use super::list::List;

const TEN_PER_MINUTE: Quota = Quota::token_bucket(10, MINUTE);
const NO_CAPACITY: Quota = Quota::token_bucket(10, MINUTE).capacity(0);

pub(crate) fn constructors(list: &mut List) {
    list.section("Constructors: panics");
    let max = Quota::MAX_TOKENS;
    list.panic("a rate of 0", || Quota::token_bucket(0, MINUTE));
    list.panic("a period of 0", || Quota::fixed_window(1, Duration::ZERO));
    list.panic("a period with nanoseconds", || Quota::sliding_window(1, Duration::from_nanos(1500)));
    list.panic("too large a rate", || Quota::per_second(max + 1));
    list.panic("too large a capacity", || TEN_PER_MINUTE.capacity(u64::MAX));
    list.panic("a capacity that takes too long to refill", || Quota::token_bucket(1, WEEK).capacity(max));
    list.panic("a sliding window with a capacity", || Quota::sliding_window(10, MINUTE).capacity(20));
    list.panic("too many reservations", || TEN_PER_MINUTE.max_reserved(max + 1));
    list.panic("a sliding window with reservations", || Quota::sliding_window(10, MINUTE).max_reserved(5));
    list.panic("a sliding window with unlimited reservations", || {
        Quota::sliding_window(10, MINUTE).unlimited_reservations()
    });
    list.panic("a start with nanoseconds", || Quota::fixed_window(10, MINUTE).start(Duration::from_nanos(1500)));
    list.panic("a name that headers cannot contain", || PolicyName::new("caf\u{e9}"));
    list.panic("too long a name", || {
        const LONG: &str = concat!(
            "a name that is much too long for a header in every response, however well it describes what the policy ",
            "is for, and whom it counts",
        );
        Policy::new(LONG, TEN_PER_MINUTE)
    });
    list.panic("a quota that refuses everything", || Policy::new("api", NO_CAPACITY));
    list.panic("the same for an unnamed policy", || Policy::from(NO_CAPACITY));
    list.panic("a tier with a different algorithm", || {
        Policy::new("api", TEN_PER_MINUTE).tier("free", Quota::fixed_window(10, MINUTE))
    });
    list.panic("a share of 0", || FailureMode::fallback(0.0));
    list.panic("a brace in a prefix", || RedisBackend::builder().prefix("{shop}"));
}

pub(crate) fn layers(list: &mut List) {
    list.section("Layers and keys: panics");
    let layer = || RateLimitLayer::new(Policy::new("api", TEN_PER_MINUTE), key::global());
    list.panic("a quota that refuses everything", || RateLimitLayer::new(NO_CAPACITY, key::global()));
    list.panic("a rule with such a quota", || Rule::new(NO_CAPACITY, key::global()));
    list.panic("a status endpoint with such a quota", || {
        status::of::<()>(&tollgate::RateLimiter::default(), NO_CAPACITY, key::global())
    });
    list.panic("two policies with the same name", || layer().and(Policy::new("api", TEN_PER_MINUTE), key::global()));
    list.panic("a wait without reservations", || layer().wait_up_to(SECOND));
    list.panic("a rule that waits without reservations", || {
        Rule::new(Policy::new("api", TEN_PER_MINUTE), key::global()).wait_up_to(SECOND)
    });
    list.panic("a header name with capital letters", || key::header("X-API-Key"));
    list.panic("a header name with a space", || layer().shadow_header("x limited"));
    list.panic("an empty header name", || layer().label_from_header("country", ""));
    list.panic("a client address from a capitalized header", || key::client_ip().from_header("CF-Connecting-IP"));
    list.panic("an invalid proxy network", || key::client_ip().trust(["10.0.0.0/8", "proxy.example.com"]));
    list.panic("the whole NAT64 prefix as a proxy network", || key::client_ip().trust(["64:ff9b::/96"]));
    list.panic("a NAT64 prefix with an invalid length", || key::client_ip().nat64(["2001:db8::/33"]));
    list.panic("proxies within a NAT64 prefix", || {
        key::client_ip().nat64(["2001:db8:64::/96"]).trust(["2001:db8:64::a00:0/104"])
    });
    list.panic("an invalid network to skip", || drop(key::client_ip().within(["192.0.2.0/33"])));
}

pub(crate) fn routes(list: &mut List) {
    list.section("Routes: panics");
    let limits = || {
        RouteLimits::new(key::global())
            .policy(Policy::new("search", TEN_PER_MINUTE))
            .policy(Policy::new("todo/create", TEN_PER_MINUTE))
    };
    list.panic("an unknown policy", || limits().route("serach"));
    list.panic("a duplicate policy", || limits().policy(Policy::new("search", TEN_PER_MINUTE)));
    list.panic("a group with an unknown policy", || limits().group("todos", ["todo/create", "serach"]));
    list.panic("a group that names a policy twice", || limits().group("todos", ["search", "search"]));
    list.panic("a group with the name of a policy", || limits().group("search", ["todo/create"]));
    list.panic("a policy with the name of a policy that applies to all requests", || {
        let all = || Policy::new("all", TEN_PER_MINUTE);
        limits().configure(|layer| layer.and(all(), key::global())).policy(all())
    });
    list.panic("an unknown default group", || limits().default_group("serach"));
    list.panic("a closure that returns another layer", || {
        limits().configure(|_| RateLimitLayer::new(TEN_PER_MINUTE, key::global()))
    });
    list.panic("a default policy with the name of another policy", || {
        limits().default_policy(Policy::new("search", TEN_PER_MINUTE))
    });
    #[cfg(feature = "serde")]
    list.panic("two key extractors with the same name", || {
        tollgate::config::ConfigReader::new().key("user", key::global()).key("user", key::global())
    });
    list.panic("a line with an unknown policy", || limits().table([("GET /search", "serach")]));
    list.panic("a duplicate line", || limits().table([("/search", "search"), ("/search", "search")]));
    list.panic("a method in lower case", || limits().table([("get /search", "search")]));
    list.panic("a misspelled method", || limits().table([("GTE /search", "search")]));
    list.panic("a parameter in axum 0.7 syntax", || limits().table([("/search/:id", "search")]));
    list.panic("a cost that never fits", || {
        axum::Router::<()>::new()
            .route("/", axum::routing::get(|| async {}))
            .layer(limits().table([("/", "search")]).fixed_cost(11))
    });
    list.panic("a line without a path", || limits().table([("search", "search")]));
}
