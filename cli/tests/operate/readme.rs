//! The commands in the README's section on operating a service.

use std::process::Command;

use crate::service::{Service, run};

#[test]
fn the_commands_in_the_readme_work_as_written() {
    let readme = include_str!("../../../README.md");
    let section = readme.split("## Operate a running service").nth(1).unwrap().split("\n## ").next().unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let service = Service::start();
    service.request("ada", 6);
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap().to_str().unwrap();
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let mut lines = block.lines();
    let setup = lines.next().unwrap().replace("127.0.0.1:3000", &service.address.to_string());
    assert!(setup.starts_with("export TOLLGATE_ADMIN_URL=http://"), "{setup}");
    let mut codes = Vec::new();
    for line in lines {
        let (code, out, error) = run(Command::new("sh").args(["-c", &format!("{setup}\n{line}")]).env("PATH", &path));
        assert!(error.is_empty() && !out.is_empty(), "{line}: {out}{error}");
        codes.push(code);
    }
    assert_eq!(codes, [0, 3, 0, 0, 0, 0, 0, 0], "`why` exits with 3 for a limited key");
    assert_eq!(service.limiter.set_quotas().len(), 1);
}
