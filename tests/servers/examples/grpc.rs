use super::running::Example;

#[test]
fn the_fourth_call_is_refused_and_the_fifth_passes_after_the_pushback() {
    let example = Example::start("grpc", &[]);
    for call in 1..=3 {
        assert_eq!(example.line(), example.promised(&format!("call {call}: Ok \"hello, ada\"")));
    }
    assert_eq!(example.line(), example.promised("call 4: ResourceExhausted"));
    let line = example.line();
    let pushback = line.strip_prefix(example.promised("    grpc-retry-pushback-ms: ")).expect("expected the pushback");
    assert!((1..=3000).contains(&pushback.parse::<u32>().unwrap()), "{line}");
    let details = "    grpc-status-details-bin: type.googleapis.com/google.rpc.RetryInfo";
    assert_eq!(example.line(), example.promised(details));
    // The client made this call as soon as the pushback time had passed.
    assert_eq!(example.line(), example.promised("call 5: Ok \"hello, ada\""));
    assert!(example.ends());
}
