//! `tollgate top`, a live table of the heaviest keys.

use std::time::Duration;

use console::{Term, truncate_str};
use serde_json::Value;

use super::client::{Client, Server, list, scope, text};
use super::show::print;

/// Shows a live table of the keys with the most requests until you press Ctrl-C. With --json, or if the output is not a
/// terminal, prints the table once.
#[derive(clap::Args, Debug)]
pub struct Top {
    /// Show only keys of this policy
    #[arg(long)]
    policy: Option<String>,
    /// Seconds between updates
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    #[command(flatten)]
    server: Server,
}

impl Top {
    pub fn run(&self) -> Result<u8, String> {
        let (client, terminal) = (self.server.connect()?, Term::stdout());
        let mut last = self.ask(&client)?;
        if self.server.json || !terminal.is_term() {
            print(&last, self.server.json, |out| *out += &table(&last, None).join("\n"));
            println!();
            return Ok(0);
        }
        let mut failed = None;
        loop {
            draw(&terminal, &last, failed.as_deref()).map_err(|error| error.to_string())?;
            // If the terminal is resized, redraw the table within a quarter of a second.
            let mut size = terminal.size();
            for _ in 0..4 * self.every {
                std::thread::sleep(Duration::from_millis(250));
                if terminal.size() != size {
                    size = terminal.size();
                    draw(&terminal, &last, failed.as_deref()).map_err(|error| error.to_string())?;
                }
            }
            // If the server cannot be reached, keep trying, because it may be restarting.
            failed = match self.ask(&client) {
                Ok(answer) => {
                    last = answer;
                    None
                }
                Err(error) => Some(error),
            };
        }
    }

    fn ask(&self, client: &Client) -> Result<Value, String> {
        let mut query = vec![("max", "100".to_owned())];
        query.extend(self.policy.iter().map(|policy| ("policy", policy.clone())));
        client.get("top", &query)
    }
}

fn draw(terminal: &Term, answer: &Value, failed: Option<&str>) -> std::io::Result<()> {
    let (rows, columns) = terminal.size();
    let lines = table(answer, failed);
    let shown = lines.iter().take(usize::from(rows).saturating_sub(1).max(1));
    let lines: Vec<_> = shown.map(|line| truncate_str(line, usize::from(columns), "…").into_owned()).collect();
    terminal.clear_screen()?;
    terminal.write_str(&lines.join("\n"))?;
    terminal.flush()
}

/// Returns the lines of the table: the state, the totals of each policy, and the heaviest keys.
fn table(answer: &Value, failed: Option<&str>) -> Vec<String> {
    let state = match failed {
        Some(error) => format!("{error} (retrying; the table is out of date)"),
        None if answer["has_top"] == false => "the program does not count charges per key; see `Admin::top`".to_owned(),
        None => format!("charges since the start of {}", scope(&answer["scope"])),
    };
    let mut lines = vec![state, format!("{:>12} {:>12}  key", "requested", "refused")];
    let mut keys: Vec<(u64, u64, String)> = Vec::new();
    for entry in list(&answer["policies"]) {
        let policy = text(&entry["policy"]);
        let total = |counts: &str| entry[counts]["total"].as_u64().unwrap_or(0);
        lines.push(format!("{:>12} {:>12}  all keys under {policy}", total("requested"), total("refused")));
        for key in list(&entry["requested"]["keys"]) {
            let refused = list(&entry["refused"]["keys"]).iter().find(|refused| refused["key"] == key["key"]);
            let count = |key: Option<&Value>| key.and_then(|key| key["count"].as_u64()).unwrap_or(0);
            let name = if key["text"].is_null() { &key["key"] } else { &key["text"] };
            keys.push((count(Some(key)), count(refused), format!("{} under {policy}", text(name))));
        }
    }
    keys.sort_by(|one, other| other.cmp(one));
    lines.extend(keys.into_iter().map(|(requested, refused, key)| format!("{requested:>12} {refused:>12}  {key}")));
    lines
}
