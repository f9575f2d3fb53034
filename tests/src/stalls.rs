//! When the machine stood still for others: a virtual machine's processors are taken away for tens of milliseconds, which
//! no program on it can be blamed for. One thread on each processor sleeps briefly and notes when it wakes up late;
//! threads that only wait for their turn behind a busy program wake up in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(1);
/// Later than this is no fault of the scheduler.
const LATE: Duration = Duration::from_millis(3);
/// Whoever notes a time does so a little before or after another.
const SLACK: Duration = Duration::from_millis(2);

/// Watches for stalls, from its start on.
pub struct Watch {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Stall>>>,
}

/// From when to when, since the watch began.
type Stall = (Duration, Duration);

/// Stalls in order, none of which touches the next.
#[derive(Debug, Default)]
pub struct Stalls(Vec<Stall>);

impl Watch {
    /// Begins to watch all processors.
    pub fn start() -> Watch {
        let (over, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let watch = |processor| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || watch(processor, start, &over))
        };
        let threads = (0..processors).map(watch).collect();
        Watch { over, threads }
    }

    /// Ends the watch.
    pub fn stop(self) -> Stalls {
        self.over.store(true, Ordering::Relaxed);
        let stalls = self.threads.into_iter().flat_map(|thread| thread.join().expect("a watcher does not panic"));
        Stalls::of(stalls.collect())
    }
}

impl Stalls {
    fn of(mut all: Vec<Stall>) -> Stalls {
        all.sort();
        let mut merged: Vec<Stall> = Vec::new();
        for (from, to) in all {
            match merged.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        Stalls(merged)
    }

    /// How much of the time from `from` on, `elapsed` long, was no stall.
    pub fn without(&self, from: Duration, elapsed: Duration) -> Duration {
        let to = from + elapsed;
        let within = |(start, end): &Stall| to.min(*end).saturating_sub(from.max(*start));
        elapsed.saturating_sub(self.0.iter().map(within).sum())
    }

    /// How long all of them were.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|(start, end)| *end - *start).sum()
    }
}

fn watch(processor: usize, start: Instant, over: &AtomicBool) -> Vec<Stall> {
    stay_on(processor);
    let mut stalls = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let due = start.elapsed() + SLEEP;
        std::thread::sleep(SLEEP);
        let woken = start.elapsed();
        if woken > due + LATE {
            stalls.push((due.saturating_sub(SLACK), woken + SLACK));
        }
    }
    stalls
}

/// Keeps this thread on one processor; where that is not allowed, it watches whichever it is on.
fn stay_on(processor: usize) {
    // SAFETY: an all-zero set is an empty one; the calls touch only it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn time_that_the_machine_took_is_counted_once_and_not_as_the_requests() {
        let stalls = Stalls::of(vec![(ms(30), ms(40)), (ms(10), ms(20)), (ms(15), ms(25))]);
        assert_eq!(stalls.total(), ms(25));
        let rows = [((0, 5), 5), ((0, 100), 75), ((12, 3), 0), ((20, 15), 5), ((25, 5), 5), ((41, 7), 7)];
        for ((from, elapsed), expected) in rows {
            assert_eq!(stalls.without(ms(from), ms(elapsed)), ms(expected), "{elapsed} ms from {from} on");
        }
    }

    #[test]
    fn a_program_that_is_busy_is_no_stall() {
        let watch = Watch::start();
        let busy = Instant::now();
        while busy.elapsed() < ms(300) {
            std::hint::spin_loop();
        }
        let stalls = watch.stop();
        assert!(stalls.total() < ms(250), "{stalls:?}");
    }
}
