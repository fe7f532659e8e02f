use std::path::Path;

use super::running::Example;

#[test]
fn the_plots_in_the_documentation_are_up_to_date() {
    let folder = std::env::temp_dir().join(format!("tollgate-plots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let example = Example::start("plots", &[folder.to_str().unwrap()]);
    let lines = [example.line(), example.line(), example.line(), example.line()];
    for line in &lines {
        example.promised(line);
    }
    assert!(example.ends());
    for line in &lines {
        let file = line.split(':').next().unwrap();
        let drawn = std::fs::read_to_string(folder.join(file)).unwrap();
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs/plots").join(file);
        let stored = std::fs::read_to_string(stored).unwrap();
        assert!(drawn == stored, "{file} is outdated: run `cargo run --example plots` and review the diff");
        assert!(stored.len() < 30_000, "{file} has {} bytes", stored.len());
        // The plots must be accessible. A blank line would end the HTML block in Markdown.
        assert!(stored.contains("role=\"img\"") && stored.contains("<title>") && stored.contains("<desc>"));
        assert!(!stored.contains("\n\n"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
