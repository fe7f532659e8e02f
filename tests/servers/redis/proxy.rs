//! A malicious server, and a proxy that simulates network failures.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

struct State {
    target: AtomicU16,
    /// How long data is delayed in each direction.
    delay: Duration,
    drops_data: AtomicBool,
    refuses_connections: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    accepted: AtomicUsize,
    bytes_seen: Mutex<Vec<u8>>,
}

impl Proxy {
    pub(crate) fn to(target: u16) -> Proxy {
        Proxy::with_delay(target, Duration::ZERO)
    }

    pub(crate) fn with_delay(target: u16, delay: Duration) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            target: AtomicU16::new(target),
            delay,
            drops_data: AtomicBool::new(false),
            refuses_connections: AtomicBool::new(false),
            open: Mutex::default(),
            accepted: AtomicUsize::new(0),
            bytes_seen: Mutex::default(),
        });
        let passing = Arc::clone(&state);
        thread::spawn(move || listener.incoming().for_each(|socket| passing.accept(socket.unwrap())));
        Proxy { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Forwards new connections to another port, as if the server's address had changed.
    pub(crate) fn point_at(&self, target: u16) {
        self.state.target.store(target, Ordering::SeqCst);
    }

    /// Sets whether all data is dropped in both directions, without closing connections.
    pub(crate) fn drop_data(&self, yes: bool) {
        self.state.drops_data.store(yes, Ordering::SeqCst);
    }

    /// Closes all current connections, and sets whether new connections are closed too.
    pub(crate) fn refuse_connections(&self, yes: bool) {
        self.state.refuses_connections.store(yes, Ordering::SeqCst);
        self.close_all();
    }

    pub(crate) fn close_all(&self) {
        for socket in self.state.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn bytes_seen(&self) -> Vec<u8> {
        self.state.bytes_seen.lock().unwrap().clone()
    }

    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

impl State {
    fn accept(self: &Arc<Self>, near: TcpStream) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        if self.refuses_connections.load(Ordering::SeqCst) {
            return;
        }
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.target.load(Ordering::SeqCst))) else { return };
        for socket in [&near, &far] {
            socket.set_nodelay(true).unwrap();
            self.open.lock().unwrap().push(socket.try_clone().unwrap());
        }
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let (forth, back) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || forth.carry(near, far));
        thread::spawn(move || back.carry(far_too, near_too));
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let (delayed, data) = mpsc::channel::<(Instant, Vec<u8>)>();
        let (mut buffer, from_too) = ([0; 16 * 1024], from.try_clone().unwrap());
        let writer = thread::spawn(move || {
            for (due, data) in data {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if to.write_all(&data).is_err() {
                    break;
                }
            }
            let _ = from_too.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            self.bytes_seen.lock().unwrap().extend(&buffer[..length]);
            let drops = self.drops_data.load(Ordering::SeqCst);
            if !drops && delayed.send((Instant::now() + self.delay, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
        drop(delayed);
        writer.join().unwrap();
    }
}

/// Starts a server that replies to script calls with `nonsense`, and returns its URL. The server keeps repeating
/// the reply if `endless` is set, and disconnects after the reply if `hangs_up` is set.
pub(crate) fn hostile(nonsense: Vec<u8>, endless: bool, hangs_up: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for socket in listener.incoming() {
            let nonsense = nonsense.clone();
            thread::spawn(move || serve_nonsense(socket.unwrap(), &nonsense, endless, hangs_up));
        }
    });
    url
}

fn serve_nonsense(mut socket: TcpStream, nonsense: &[u8], endless: bool, hangs_up: bool) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(length @ 1..) = socket.read(&mut buffer) {
        let asked = String::from_utf8_lossy(&buffer[..length]);
        let mut answer = b"+OK\r\n".repeat(asked.matches("TIME").count());
        if asked.contains("GET\r\n") {
            answer.extend(b"$-1\r\n");
        }
        let decides = asked.contains("EVAL");
        if decides {
            answer.extend(nonsense);
        }
        while socket.write_all(&answer).is_ok() && endless && decides {
            // This pause limits the rate to half a gigabyte per second.
            thread::sleep(Duration::from_millis(2));
        }
        if hangs_up && decides {
            return;
        }
    }
}
