//! Known faults. Each test asserts today's wrong behavior, and says what is right. Whoever mends a fault turns its test
//! round.

use tollgate::policy::Quotas;

use crate::service::Service;

/// Right: the output names the quotas that were replaced (`5/h; 2/s → 9/min`). Cause: `Server::change` in
/// `src/operate/change.rs` prints a fixed text, and the router's answer does not contain the earlier quotas.
#[test]
fn fault_17_a_quota_removes_the_other_quotas_of_the_policy_and_the_output_does_not_say_so() {
    let service = Service::start();
    let quotas = || service.limiter.quotas(&service.policy, "ada").to_string();
    let both: Quotas = "5/h; 2/s".parse().unwrap();
    service.tollgate(&["quota", &both.to_string(), "--policy", "hello"]);
    assert_eq!(quotas(), "5/h; 2/s");
    let output = service.tollgate(&["quota", "9/min", "--policy", "hello"]);
    assert_eq!(output, (0, "set in this process\n".into(), String::new()));
    assert_eq!(quotas(), "9/min");
}

/// Right: exit code 3 and `nothing to change`, as `reset` and `unblock` answer. Cause: `quota` and `enforcement` in the
/// crate's `src/admin/change.rs` do not answer whether there was a setting to remove.
#[test]
fn fault_20_restoring_a_setting_that_was_never_changed_succeeds() {
    let service = Service::start();
    for arguments in [
        &["quota", "--restore", "--policy", "hello"][..],
        &["quota", "--restore", "--policy", "hello", "--tier", "premium"],
        &["quota", "--restore", "--policy", "hello", "--key", "7"],
        &["enforce", "--restore", "--policy", "hello"],
    ] {
        let output = service.tollgate(arguments);
        assert_eq!(output, (0, "restored in this process\n".into(), String::new()), "{arguments:?}");
    }
    assert_eq!(service.tollgate(&["reset", "7", "--policy", "hello"]).0, 3);
}
