//! A minimal HTTP/1 client that sends requests in bulk, and counts and discards responses.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Tally, Target};
use crate::honest::connect;

pub struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub async fn connect(from: Ipv4Addr, to: SocketAddr) -> Result<Client> {
        Ok(Client { stream: connect(from, to).await?, unread: Vec::new() })
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads and counts this many responses.
    pub async fn read_responses(&mut self, count: u64, tally: &Tally) -> Result<()> {
        for _ in 0..count {
            tally.count_status(self.read_response().await?);
        }
        Ok(())
    }

    /// The status of the next response, which has a content length or no body.
    async fn read_response(&mut self) -> Result<u16> {
        let head = loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                break end + 4;
            }
            self.more().await?;
        };
        let text = String::from_utf8_lossy(&self.unread[..head]).to_ascii_lowercase();
        let nonsense = || Error::new(ErrorKind::InvalidData, "no HTTP/1 response");
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(nonsense)?;
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap_or("0");
        let length: usize = length.trim().parse().map_err(|_| nonsense())?;
        while self.unread.len() < head + length {
            self.more().await?;
        }
        self.unread.drain(..head + length);
        Ok(status)
    }

    async fn more(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// A client that reconnects when its connection breaks. Each broken connection counts as cut.
pub struct ReconnectingClient {
    target: Target,
    from: Ipv4Addr,
    client: Option<Client>,
}

impl ReconnectingClient {
    pub fn new(target: Target, from: Ipv4Addr) -> ReconnectingClient {
        ReconnectingClient { target, from, client: None }
    }

    /// Sends this many requests together and counts the responses.
    pub async fn exchange(&mut self, requests: &[u8], count: u64) {
        if self.try_exchange(requests, count).await.is_err() {
            self.target.tally.cut();
            self.client = None;
        }
    }

    async fn try_exchange(&mut self, requests: &[u8], count: u64) -> Result<()> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(self.from, self.target.server).await?),
        };
        client.send(requests).await?;
        self.target.tally.sent(count);
        client.read_responses(count, &self.target.tally).await
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
