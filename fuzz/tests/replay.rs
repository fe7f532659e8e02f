//! Replays the stored corpora, without libFuzzer and with any compiler.

use std::fs;
use std::path::Path;

use tollgate_fuzz::TARGETS;

#[test]
fn all_kept_inputs_pass() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    // The inputs of `redis_server` also run over real sockets.
    let over_sockets = ("redis_server", tollgate_fuzz::redis_socket::run as fn(&[u8]));
    for (name, run) in TARGETS.iter().copied().chain([over_sockets]) {
        let mut inputs = 0;
        for file in fs::read_dir(corpora.join(name)).expect("a corpus") {
            let path = file.expect("a file").path();
            println!("{}", path.display());
            run(&fs::read(&path).expect("a readable file"));
            inputs += 1;
        }
        assert!(inputs > 0, "no inputs for {name}");
    }
}
