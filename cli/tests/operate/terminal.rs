//! The live table in a terminal multiplexer: updates, resizing, and a restart of the server.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::service::{Service, TOKEN};

/// A terminal multiplexer with its own socket. It is stopped when this value is dropped.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn start(command: &str) -> Tmux {
        let tmux = Tmux { socket: format!("tollgate-test-{}", std::process::id()) };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "12", command]);
        tmux
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").arg("-L").arg(&self.socket).args(arguments).output();
        let output = output.expect("tmux is missing: apt-get install --no-install-recommends tmux");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the screen meets a condition. Returns the screen.
    fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if condition(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "timed out waiting for {what}; screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        drop(Command::new("tmux").arg("-L").arg(&self.socket).arg("kill-server").output());
    }
}

#[test]
fn the_live_table_survives_resizing_and_a_restart_of_the_server() {
    let service = Service::start();
    service.request("ada", 8);
    let address = service.address;
    let program = env!("CARGO_BIN_EXE_tollgate");
    let command = format!("env TOLLGATE_ADMIN_TOKEN={TOKEN} '{program}' top --every 1 --url '{}'", service.url());
    let tmux = Tmux::start(&command);
    tmux.wait_for("the first table", |screen| screen.contains("8            3  path(name):ada under hello"));

    // New counts replace the old table.
    service.request("ada", 1);
    for i in 0..12 {
        service.request(&format!("user-{i}-{}", "x".repeat(60)), 2);
    }
    let screen = tmux.wait_for("new counts", |screen| screen.contains("9            4  path(name):ada"));
    assert_eq!(screen.matches("requested").count(), 1, "{screen}");
    let fits = |screen: &str, width: usize| screen.lines().all(|line| line.chars().count() <= width);
    assert!(fits(&screen, 80) && screen.starts_with("charges since"), "{screen}");

    tmux.run(&["resize-window", "-x", "40", "-y", "6"]);
    // Until the table is redrawn, the terminal wraps the lines of the large table.
    let is_small =
        |screen: &str| screen.starts_with("charges since") && fits(screen, 40) && screen.lines().count() <= 6;
    tmux.wait_for("the small table", |screen| is_small(screen) && screen.contains("all keys"));
    tmux.run(&["resize-window", "-x", "100", "-y", "20"]);
    tmux.wait_for("the large table", |screen| screen.contains("user-11-") && screen.starts_with("charges since"));

    drop(service);
    tmux.wait_for("the server to stop", |screen| screen.contains("cannot reach") && screen.contains("path(name):ada"));
    let service = Service::start_at(&address.to_string());
    service.request("eve", 3);
    tmux.wait_for("the server to restart", |screen| screen.contains("3            0  path(name):eve"));
}
