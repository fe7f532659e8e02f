use std::path::Path;

use crate::running::Example;

#[test]
fn the_plots_of_the_documentation_are_what_the_arithmetic_draws() {
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
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs/plots").join(file);
        let kept = std::fs::read_to_string(kept).unwrap();
        assert!(drawn == kept, "{file} is not what is drawn: run `cargo run --example plots`, and look at it");
        assert!(kept.len() < 30_000, "{file} has {} bytes", kept.len());
        // Read aloud, too; and fit to stand in the midst of markdown.
        assert!(kept.contains("role=\"img\"") && kept.contains("<title>") && kept.contains("<desc>"));
        assert!(!kept.contains("\n\n"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
