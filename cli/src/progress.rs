//! The progress bar, which is shown only on a terminal.

use std::io::{IsTerminal, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a function that shows how much of a file has been read.
pub fn bar(path: &Path) -> impl FnOnce(Box<dyn Read>) -> Box<dyn Read> {
    let size = std::fs::metadata(path).ok().filter(|file| file.is_file()).map(|file| file.len());
    move |input| {
        if !std::io::stderr().is_terminal() {
            return input;
        }
        let bar = size.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        if size.is_some() {
            let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        Box::new(bar.wrap_read(input))
    }
}
