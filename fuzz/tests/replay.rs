//! The kept corpora once more, without libFuzzer and on any compiler.

use std::fs;
use std::path::Path;

use tollgate_fuzz::TARGETS;

#[test]
fn everything_that_was_kept_still_holds() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, one) in TARGETS {
        let mut inputs = 0;
        for file in fs::read_dir(corpora.join(name)).expect("a corpus") {
            let path = file.expect("a file").path();
            println!("{}", path.display());
            one(&fs::read(&path).expect("a readable file"));
            inputs += 1;
        }
        assert!(inputs > 0, "no inputs for {name}");
    }
}
