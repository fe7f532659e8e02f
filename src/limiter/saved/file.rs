//! Saving the state to a file, and loading it again. The file is always replaced as a whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{Loaded, RateLimiter, Saved, StateError};

impl RateLimiter {
    /// [Saves](RateLimiter::save) the state to a file, for example at the end of a graceful shutdown. The
    /// [restarts](crate::docs::restarts) page has an example.
    ///
    /// The state is written to a new file next to `path`, flushed to the disk, and renamed. If the process is killed or
    /// the disk is full, `path` still contains the earlier state. A killed process may leave the new file behind. Its
    /// name is `path`, followed by a dot, the process ID and `.tmp`. On Unix, only the owner can read the file. If
    /// several processes save to the same path, the last one wins, so give each process its own path.
    ///
    /// # Errors
    /// Fails in the same cases as [`save`](RateLimiter::save), and if the file cannot be created, flushed or renamed.
    pub fn save_to_file(&self, path: impl AsRef<Path>) -> Result<Saved, StateError> {
        let path = path.as_ref();
        save(self, path).map_err(|error| error.in_file(path))
    }

    /// [Loads](RateLimiter::load) the state from a file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Fails in the same cases as [`load`](RateLimiter::load), and if the file cannot be opened.
    pub fn load_from_file(&self, path: impl AsRef<Path>) -> Result<Option<Loaded>, StateError> {
        let path = path.as_ref();
        // A missing secret is reported even if there is no file yet.
        self.inner.state_secret()?;
        let loaded = match File::open(path) {
            Ok(file) => self.load(io::BufReader::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(StateError::io("cannot open the file", error)),
        };
        loaded.map(Some).map_err(|error| error.in_file(path))
    }
}

fn save(limiter: &RateLimiter, path: &Path) -> Result<Saved, StateError> {
    // Without this lock, two threads in the same process could write to the same new file.
    let _turn = SAVING.lock().unwrap_or_else(PoisonError::into_inner);
    limiter.inner.state_secret()?;
    let new = new_path(path);
    let saved = write(limiter, &new).and_then(|saved| {
        fs::rename(&new, path).map_err(|error| StateError::io("cannot replace the file", error))?;
        Ok(saved)
    });
    if saved.is_err() {
        let _ = fs::remove_file(&new); // Only the first error is reported.
        return saved;
    }
    flush_directory(path).map_err(|error| StateError::io("cannot flush the file's directory", error))?;
    saved
}

fn write(limiter: &RateLimiter, path: &Path) -> Result<Saved, StateError> {
    // A file left behind by an earlier process with the same ID, or a link at this path, is removed rather than opened.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let cannot_create = |error| StateError::io("cannot create a temporary file in the same directory", error);
    let file = options.open(path).map_err(cannot_create)?;
    let saved = limiter.save(&file)?;
    file.sync_all().map_err(StateError::write)?;
    Ok(saved)
}

fn new_path(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    PathBuf::from(name)
}

/// Flushes the directory to disk, so that the rename is durable. Only on Unix can a directory be opened for this.
fn flush_directory(path: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

static SAVING: Mutex<()> = Mutex::new(());
