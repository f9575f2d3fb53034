//! Requests that come, and bytes that go between gateways and the store.

use lockkeeper_core::resp::Decoder;

use crate::gateway::Happened;
use crate::network::Link;
use crate::world::{Event, World};

const PATHS: [&str; 3] = ["/deny", "/allow", "/local"];
const CLIENTS: [&str; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];

impl World {
    /// One request comes, and after a while the next.
    pub fn arrive(&mut self) {
        let gateway = self.random.between(0, self.gateways.len() as u64 - 1) as usize;
        let (path, client) = (self.random.pick(&PATHS), self.random.pick(&CLIENTS));
        let request = self.requests.begin(gateway, path, self.now_us);
        self.gateways[gateway].begin(request, path, client, self.now_us);
        self.follow(gateway);
        let longest_us = self.random.pick(&[0, 200, 2_000, 20_000]);
        let pause_us = self.random.between(0, longest_us);
        self.after(pause_us, Event::Arrives);
    }

    /// Takes note of what a gateway did, and does what it asked for.
    pub fn follow(&mut self, gateway: usize) {
        for happened in self.gateways[gateway].happened() {
            match happened {
                Happened::Decided { request, decision } => {
                    self.requests.decided(request, decision, &self.store, self.now_us);
                }
                Happened::Written { request, tag, is_upload } => self.requests.written(request, tag, is_upload),
                Happened::Replied { request, reply } => self.requests.replied(request, &reply, &self.store),
                Happened::Sent(bytes) => self.send_to_store(gateway, bytes),
                Happened::Opens => self.open(gateway),
                Happened::Ticks(tick_us) => {
                    self.schedules[gateway] += 1;
                    let schedule = self.schedules[gateway];
                    self.after(tick_us, Event::Ticks { gateway, schedule });
                }
            }
        }
        self.requests.watch_breaker(gateway, self.gateways[gateway].pipe.breaker_is_closed());
    }

    /// Opens a connection, refuses it at once, or lets it seem open for a moment, as a proxy in between does.
    fn open(&mut self, gateway: usize) {
        self.links += 1;
        let mut link = Link::new(self.links);
        let is_refused = self.now_us < self.connections_refused_until_us;
        if is_refused && self.random.percent(50) {
            self.gateways[gateway].closed(self.now_us);
        } else {
            link.is_black_hole = is_refused;
            if is_refused {
                let delay_us = self.random.between(0, 20_000);
                self.after(delay_us, Event::LinkCloses { gateway, link: link.id });
            }
            self.inbound.insert(link.id, Decoder::default());
            self.gateways[gateway].opened(link, self.now_us);
        }
        self.follow(gateway);
    }

    fn delivery_us(&mut self, last_us: u64) -> u64 {
        let (shortest_us, longest_us) = self.delay_us;
        (self.now_us + self.random.between(shortest_us, longest_us)).max(last_us)
    }

    fn send_to_store(&mut self, gateway: usize, bytes: Vec<u8>) {
        for piece in self.random.pieces(bytes) {
            let link = self.gateways[gateway].link.as_ref().expect("bytes are sent on a connection");
            let (id, is_black_hole, last_us) = (link.id, link.is_black_hole, link.to_store_us);
            let time_us = self.delivery_us(last_us);
            if let Some(link) = self.gateways[gateway].link.as_mut() {
                link.to_store_us = time_us;
            }
            if !is_black_hole {
                self.at(time_us, Event::ReachesStore { gateway, link: id, bytes: piece });
            }
        }
    }

    /// The store reads what has come, unless it is paused.
    pub fn read_backlog(&mut self) {
        if self.now_us < self.store_paused_until_us {
            return;
        }
        for (gateway, link, bytes) in std::mem::take(&mut self.backlog) {
            self.read(gateway, link, &bytes);
        }
    }

    /// Also what has come on a connection that the gateway has closed meanwhile.
    fn read(&mut self, gateway: usize, link: u64, bytes: &[u8]) {
        let Some(inbound) = self.inbound.get_mut(&link) else { return };
        inbound.extend(bytes);
        let commands: Vec<_> = std::iter::from_fn(|| inbound.next_reply().expect("commands are RESP")).collect();
        for command in commands {
            let reply = self.store.answer(&command, self.now_us);
            self.send_to_gateway(gateway, link, reply);
        }
    }

    fn send_to_gateway(&mut self, gateway: usize, id: u64, reply: Vec<u8>) {
        let Some(link) = self.gateways[gateway].link.as_mut().filter(|link| link.id == id && !link.is_black_hole)
        else {
            return;
        };
        if link.reply_fault.is_some() {
            self.requests.confuse(gateway, self.now_us);
        }
        let bytes = link.spoil(reply, &mut self.random);
        let (bytes, closes) = link.cut(bytes);
        link.is_black_hole |= closes;
        let mut time_us = link.to_gateway_us;
        for bytes in self.random.pieces(bytes) {
            time_us = self.delivery_us(time_us);
            self.at(time_us, Event::ReachesGateway { gateway, link: id, bytes });
        }
        if closes {
            self.at(time_us.max(self.now_us), Event::LinkCloses { gateway, link: id });
        }
        if let Some(link) = self.gateways[gateway].link.as_mut() {
            link.to_gateway_us = time_us;
        }
    }
}
