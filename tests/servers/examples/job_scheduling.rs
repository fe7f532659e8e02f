use super::running::Example;

#[test]
fn jobs_run_at_their_due_times_and_the_slot_of_a_canceled_job_is_reused() {
    let example = Example::start("job_scheduling", &[]);
    for line in ["job 1 runs in 0.5 s", "job 2 runs in 1.5 s", "job 3 runs in 2.0 s", "job 4 runs in 3.0 s"] {
        check_line(&example.line(), example.promised(line));
    }
    check_line(&example.line(), example.promised("at 0.5 s: job 1, planned for 0.5 s"));
    assert_eq!(example.line(), example.promised("job 4 is canceled"));
    check_line(&example.line(), example.promised("job 5 runs in 2.5 s"));
    for line in [
        "at 1.5 s: job 2, planned for 1.5 s",
        "at 2.0 s: job 3, planned for 2.0 s",
        "at 3.0 s: job 5, planned for 3.0 s",
    ] {
        check_line(&example.line(), example.promised(line));
    }
    assert!(example.ends());
}

/// Compares a line with the promised line. A busy machine can run jobs late, which shortens the delays that the example
/// prints. Therefore, this checks only that no job runs early and that no printed delay is longer than promised.
#[track_caller]
fn check_line(line: &str, promised: &str) {
    let (words, times) = parts(line);
    let (promised_words, promised_times) = parts(promised);
    assert_eq!(words, promised_words);
    assert_eq!(times.len(), promised_times.len());
    for (time, promised) in times.iter().zip(promised_times) {
        let holds = if words[0] == "at" { *time >= promised } else { *time <= promised };
        assert!(holds, "{line:?}, promised {promised:?}");
    }
}

/// Returns the words of a line and its numbers. A number without a decimal point counts as a word.
fn parts(line: &str) -> (Vec<&str>, Vec<f64>) {
    let (times, words): (Vec<_>, Vec<_>) = line.split(' ').partition(|word| word.contains('.'));
    (words, times.iter().map(|time| time.trim_end_matches(',').parse().unwrap()).collect())
}
