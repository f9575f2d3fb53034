//! A library for `LD_PRELOAD`: steps the wall clock of a process by the seconds in a file that a test changes at any
//! time, or lets it stand at the microsecond that follows there, where that is not 0. Other clocks stay as they are.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

const SYS_CLOCK_GETTIME: c_long = if cfg!(target_arch = "aarch64") { 113 } else { 228 };
const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;
const PROT_READ: c_int = 1;
const MAP_SHARED: c_int = 1;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
pub struct Timeval {
    seconds: i64,
    microseconds: i64,
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn syscall(number: c_long, ...) -> c_long;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: passes on what the caller has promised of its pointer.
    let status = unsafe { syscall(SYS_CLOCK_GETTIME, clock, time) };
    if status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        let [step_seconds, standing_us] = settings().map(|setting| setting.load(Ordering::Relaxed));
        // SAFETY: the kernel has just written there.
        unsafe {
            match standing_us {
                0 => (*time).seconds += step_seconds,
                us => *time = Timespec { seconds: us / 1_000_000, nanoseconds: us % 1_000_000 * 1_000 },
            }
        }
    }
    status as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, _zone: *mut c_void) -> c_int {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `now` is ours.
    let status = unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    // SAFETY: the caller has promised a null pointer or a valid one.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = Timeval { seconds: now.seconds, microseconds: now.nanoseconds / 1_000 };
    }
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut i64) -> i64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `now` is ours.
    unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    // SAFETY: the caller has promised a null pointer or a valid one.
    if let Some(time) = unsafe { time.as_mut() } {
        *time = now.seconds;
    }
    now.seconds
}

/// The numbers in the file that the environment names. Nothing here allocates: the allocator itself asks for the time.
fn settings() -> [&'static AtomicI64; 2] {
    static NONE: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];
    static SETTINGS: AtomicPtr<[AtomicI64; 2]> = AtomicPtr::new(null_mut());
    let mut settings = SETTINGS.load(Ordering::Acquire);
    if settings.is_null() {
        // SAFETY: the strings end with NUL; the file holds sixteen bytes and stays mapped for good.
        settings = unsafe {
            match getenv(c"STEP_CLOCK_FILE".as_ptr()) {
                path if path.is_null() => (&raw const NONE).cast_mut(),
                path => mmap(null_mut(), 16, PROT_READ, MAP_SHARED, open(path, 0), 0).cast(),
            }
        };
        SETTINGS.store(settings, Ordering::Release);
    }
    // SAFETY: it points to sixteen aligned bytes that are never unmapped.
    let [step_seconds, standing_us] = unsafe { &*settings };
    [step_seconds, standing_us]
}
