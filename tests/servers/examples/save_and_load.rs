use super::running::{Example, statuses};

#[tokio::test]
async fn spent_tokens_are_saved_on_shutdown_and_loaded_on_start() {
    let directory = std::env::temp_dir().join(format!("tollgate-save-and-load-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let environment = [("STATE_DIR", directory.to_str().unwrap())];

    let example = Example::start_with("save_and_load", &[], &environment);
    assert_eq!(example.line(), "no saved state");
    let server = example.address();
    assert_eq!(statuses(3, server, "GET /", &[]).await, example.promised("200 200 200"));
    example.terminate();
    assert_eq!(example.line(), example.promised("saved 1 row"));
    assert!(example.ends());

    let example = Example::start_with("save_and_load", &[], &environment);
    assert_eq!(example.line(), example.promised("loaded 1 row"));
    let server = example.address();
    assert_eq!(statuses(3, server, "GET /", &[]).await, example.promised("200 200 429"));

    // The service starts even if the file is damaged.
    drop(example);
    std::fs::write(directory.join("limits.state"), "damaged").unwrap();
    let example = Example::start_with("save_and_load", &[], &environment);
    assert_eq!(statuses(1, example.address(), "GET /", &[]).await, "200");
    std::fs::remove_dir_all(&directory).unwrap();
}
