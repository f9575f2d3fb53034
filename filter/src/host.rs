//! Every call to the host, each returning an error instead of panicking: the SDK's own wrappers panic on statuses that
//! a request can provoke, and a panic here would strand every paused request of the worker.

use std::ptr::null_mut;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, MetricType};

/// A status other than OK, as the host gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError(pub u32);

/// The host's word on a call.
pub type HostResult<T> = Result<T, HostError>;

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_set_tick_period_milliseconds(period_ms: u32) -> u32;
    fn proxy_get_buffer_bytes(kind: u32, start: usize, max: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_buffer_bytes(kind: u32, start: usize, size: usize, data: *const u8, data_size: usize) -> u32;
    fn proxy_get_header_map_value(
        kind: u32,
        name: *const u8,
        name_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_add_header_map_value(
        kind: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        kind: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(kind: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_get_header_map_pairs(kind: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, value_size: usize, cas: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_close_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_grpc_send(token: u32, message: *const u8, message_size: usize, end_stream: u32) -> u32;
    fn proxy_grpc_cancel(token: u32) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, queue: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(queue: u32, value: *const u8, value_size: usize) -> u32;
    fn proxy_dequeue_shared_queue(queue: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_done() -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(buffer: *mut u8, size: usize) -> u16;
    fn clock_time_get(clock: u32, precision: u64, time_ns: *mut u64) -> u16;
    fn environ_sizes_get(count: *mut usize, size: *mut usize) -> u16;
    fn environ_get(pointers: *mut *mut u8, buffer: *mut u8) -> u16;
}

fn done(status: u32) -> HostResult<()> {
    if status == OK { Ok(()) } else { Err(HostError(status)) }
}

/// Takes over the bytes that the host has allocated in our memory; `None` when the host found nothing.
fn taken(status: u32, data: *mut u8, size: usize) -> HostResult<Option<Vec<u8>>> {
    match status {
        OK if data.is_null() => Ok(Some(Vec::new())),
        // SAFETY: the host got this block from our exported allocator with exactly this size and hands it over.
        OK => Ok(Some(unsafe { Vec::from_raw_parts(data, size, size) })),
        NOT_FOUND => Ok(None),
        status => Err(HostError(status)),
    }
}

/// Microseconds of a clock that never steps; the same for all workers of this process.
pub fn monotonic_us() -> u64 {
    const CLOCK_MONOTONIC: u32 = 1;
    clock_ns(CLOCK_MONOTONIC) / 1_000
}

/// Seconds of Unix time.
pub fn unix_s() -> u64 {
    const CLOCK_REALTIME: u32 = 0;
    clock_ns(CLOCK_REALTIME) / 1_000_000_000
}

fn clock_ns(clock: u32) -> u64 {
    let mut time_ns = 0;
    // SAFETY: the host writes eight bytes to the address given.
    let status = unsafe { clock_time_get(clock, 1_000, &mut time_ns) };
    if status == 0 { time_ns } else { 0 }
}

/// Random bytes from the host's cryptographic generator.
pub fn random_bytes<const N: usize>() -> HostResult<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the host writes at most N bytes to the address given.
    match unsafe { random_get(bytes.as_mut_ptr(), N) } {
        0 => Ok(bytes),
        status => Err(HostError(u32::from(status))),
    }
}

/// A variable of this VM's environment, which is what `vm_config.environment_variables` says.
pub fn environment_variable(name: &str) -> Option<String> {
    let environment = environment()?;
    let of_name = |line: &&[u8]| line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    let line = environment.split(|byte| *byte == 0).find(of_name)?;
    let value = line.get(name.len().saturating_add(1)..)?;
    String::from_utf8(value.to_vec()).ok()
}

/// All variables, as lines `NAME=value` that end with NUL.
fn environment() -> Option<Vec<u8>> {
    let (mut count, mut size) = (0, 0);
    // SAFETY: the host writes two numbers to the addresses given.
    let status = unsafe { environ_sizes_get(&mut count, &mut size) };
    let (mut pointers, mut buffer) = (vec![null_mut(); count], vec![0; size]);
    // SAFETY: the host writes as many pointers and bytes as it has just said.
    let status = status.max(unsafe { environ_get(pointers.as_mut_ptr(), buffer.as_mut_ptr()) });
    (status == 0).then_some(buffer)
}

/// Sets how often this plugin's root is ticked on this worker.
pub fn set_tick_period(period: Duration) {
    let period_ms = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
    // SAFETY: passes a number.
    unsafe { proxy_set_tick_period_milliseconds(period_ms) };
}

/// Bytes of a buffer that the current callback may read.
pub fn buffer(kind: BufferType, start: usize, max: usize) -> HostResult<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host writes a pointer and a size to the addresses given.
    let status = unsafe { proxy_get_buffer_bytes(kind as u32, start, max, &mut data, &mut size) };
    taken(status, data, size).map(Option::unwrap_or_default)
}

/// Replaces `size` bytes of a buffer from its start.
pub fn replace_buffer(kind: BufferType, size: usize, bytes: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads the slice given.
    done(unsafe { proxy_set_buffer_bytes(kind as u32, 0, size, bytes.as_ptr(), bytes.len()) })
}

/// The first line of a request header, as long as the request is at its headers.
pub fn request_header(name: &str) -> HostResult<Option<Vec<u8>>> {
    header(MapType::HttpRequestHeaders, name)
}

/// The first line of a response header.
pub fn response_header(name: &str) -> HostResult<Option<Vec<u8>>> {
    header(MapType::HttpResponseHeaders, name)
}

fn header(kind: MapType, name: &str) -> HostResult<Option<Vec<u8>>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host reads the name and writes a pointer and a size to the addresses given.
    let status = unsafe { proxy_get_header_map_value(kind as u32, name.as_ptr(), name.len(), &mut data, &mut size) };
    taken(status, data, size)
}

/// Adds a response header line beside those of the same name.
pub fn add_response_header(name: &str, value: &str) -> HostResult<()> {
    let kind = MapType::HttpResponseHeaders as u32;
    // SAFETY: the host reads the two strings given.
    done(unsafe { proxy_add_header_map_value(kind, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// Sets a response header, in place of all lines of that name.
pub fn set_response_header(name: &str, value: &str) -> HostResult<()> {
    let kind = MapType::HttpResponseHeaders as u32;
    // SAFETY: the host reads the two strings given.
    done(unsafe { proxy_replace_header_map_value(kind, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// A property by its path, whose steps are separated by NUL. `None` when it is missing.
pub fn property(path: &str) -> HostResult<Option<Vec<u8>>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host reads the path and writes a pointer and a size to the addresses given.
    let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &mut data, &mut size) };
    taken(status, data, size)
}

/// Writes filter state `wasm.<name>`.
pub fn set_filter_state(name: &str, value: &str) -> HostResult<()> {
    // SAFETY: the host reads the two strings given.
    done(unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// A value shared by all workers, with the number that a compare-and-swap must name; `None` when there is none.
pub fn shared_data(key: &str) -> HostResult<Option<(Vec<u8>, u32)>> {
    let (mut data, mut size, mut cas) = (null_mut(), 0, 0);
    // SAFETY: the host reads the key and writes a pointer, a size and a number to the addresses given.
    let status = unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), &mut data, &mut size, &mut cas) };
    Ok(taken(status, data, size)?.map(|bytes| (bytes, cas)))
}

/// Whether a compare-and-swap happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It did.
    Written,
    /// Somebody else wrote first.
    Mismatch,
}

/// Writes a shared value if it is still the one that `cas` names, or still absent when `cas` is `None`.
pub fn swap_shared_data(key: &str, value: &[u8], cas: Option<u32>) -> HostResult<Swap> {
    const CAS_MISMATCH: u32 = 8;
    // An absent value is created whatever number is named; naming one that no value ever has keeps a present one.
    let cas = cas.unwrap_or(u32::MAX);
    // SAFETY: the host reads the key and the value given.
    match unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) } {
        OK => Ok(Swap::Written),
        CAS_MISMATCH => Ok(Swap::Mismatch),
        status => Err(HostError(status)),
    }
}

/// Sets a request header, in place of all lines of that name.
pub fn set_request_header(name: &str, value: &str) -> HostResult<()> {
    let kind = MapType::HttpRequestHeaders as u32;
    // SAFETY: the host reads the two strings given.
    done(unsafe { proxy_replace_header_map_value(kind, name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// Takes all lines of a request header out.
pub fn remove_request_header(name: &str) -> HostResult<()> {
    let kind = MapType::HttpRequestHeaders as u32;
    // SAFETY: the host reads the name given.
    done(unsafe { proxy_remove_header_map_value(kind, name.as_ptr(), name.len()) })
}

/// All lines of the response's headers, in order; names in lower case.
pub fn response_headers() -> HostResult<Vec<(String, Vec<u8>)>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host writes a pointer and a size to the addresses given.
    let status = unsafe { proxy_get_header_map_pairs(MapType::HttpResponseHeaders as u32, &mut data, &mut size) };
    Ok(parsed(&taken(status, data, size)?.unwrap_or_default()))
}

/// Reads the wire form of a header map; what does not fit it ends it.
fn parsed(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let word = |word: &[u8]| word.try_into().map_or(0, |word| u32::from_le_bytes(word) as usize);
    let Some((count, rest)) = bytes.split_at_checked(4) else { return Vec::new() };
    let sizes = word(count).checked_mul(8).and_then(|sizes| rest.split_at_checked(sizes));
    let Some((sizes, mut texts)) = sizes else { return Vec::new() };
    let mut take = |size: &[u8]| {
        let (text, rest) = texts.split_at_checked(word(size))?;
        texts = rest.get(1..)?;
        Some(text.to_vec())
    };
    let mut lines = Vec::new();
    for pair in sizes.chunks_exact(8) {
        let Some((name_size, value_size)) = pair.split_at_checked(4) else { break };
        let (Some(name), Some(value)) = (take(name_size), take(value_size)) else { break };
        lines.push((String::from_utf8_lossy(&name).into_owned(), value));
    }
    lines
}

/// Lets the paused response of the effective context go on.
pub fn resume_response() -> HostResult<()> {
    const RESPONSE: u32 = 1;
    // SAFETY: passes a number.
    done(unsafe { proxy_continue_stream(RESPONSE) })
}

/// Lets the paused request of the effective context go on.
pub fn resume_request() -> HostResult<()> {
    const REQUEST: u32 = 0;
    // SAFETY: passes a number.
    done(unsafe { proxy_continue_stream(REQUEST) })
}

/// Resets the stream of the effective context.
pub fn reset_stream() -> HostResult<()> {
    const REQUEST: u32 = 0;
    // SAFETY: passes a number.
    done(unsafe { proxy_close_stream(REQUEST) })
}

/// A response of our own.
pub struct LocalResponse<'a> {
    /// The HTTP status.
    pub status: u32,
    /// The fields; names in lower case.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// The content, or the message of a gRPC status.
    pub body: &'a [u8],
    /// A gRPC status for gRPC clients.
    pub grpc_status: Option<i32>,
    /// What the access log shows as response code details.
    pub details: &'a str,
}

/// Answers the request of the effective context.
pub fn send_response(response: &LocalResponse<'_>) -> HostResult<()> {
    const NO_GRPC_STATUS: i32 = -1;
    let headers = serialized(response.headers);
    // SAFETY: the host reads the slices given.
    done(unsafe {
        proxy_send_local_response(
            response.status,
            response.details.as_ptr(),
            response.details.len(),
            response.body.as_ptr(),
            response.body.len(),
            headers.as_ptr(),
            headers.len(),
            response.grpc_status.unwrap_or(NO_GRPC_STATUS),
        )
    })
}

/// Makes the pause that the current request callback of `stream` ends with one of everything, body and trailers too, with
/// back-pressure: what a pause at the headers means without `allow_on_headers_stop_iteration`. Envoy stops everything
/// once an answer was sent in a callback, and an answer sent for the root goes to nobody.
pub fn pause_everything(root: u32, stream: u32) -> HostResult<()> {
    set_effective_context(root)?;
    let nothing = LocalResponse { status: 500, headers: &[], body: &[], grpc_status: None, details: "" };
    let sent = send_response(&nothing);
    set_effective_context(stream)?;
    sent
}

/// The wire form of a header map: the count, all sizes, then each name and value, ended by NUL.
fn serialized(headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = word(headers.len()).to_vec();
    for (name, value) in headers {
        bytes.extend(word(name.len()));
        bytes.extend(word(value.len()));
    }
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(text);
        bytes.push(0);
    }
    bytes
}

/// Opens a gRPC stream from the context that is being called, which will get its messages.
pub fn open_stream(cluster: &str) -> HostResult<u32> {
    // The SDK's own, for its dispatcher must learn of the stream. Envoy gives no status that it panics on.
    hostcalls::open_grpc_stream(cluster, "lockkeeper", "pipe", Vec::new()).map_err(|status| HostError(status as u32))
}

/// Sends one message.
pub fn send_on_stream(token: u32, message: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads the slice given.
    done(unsafe { proxy_grpc_send(token, message.as_ptr(), message.len(), 0) })
}

/// Gives a stream up; its messages and its end are not reported any more.
pub fn cancel_stream(token: u32) -> HostResult<()> {
    // SAFETY: passes a number.
    done(unsafe { proxy_grpc_cancel(token) })
}

/// A queue of which the root that is being called is told, once for each value.
pub fn register_queue(name: &[u8]) -> HostResult<u32> {
    let mut queue = 0;
    // SAFETY: the host reads the name and writes a number to the address given.
    let status = unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &mut queue) };
    done(status).map(|()| queue)
}

/// Puts a value into a queue.
pub fn enqueue(queue: u32, value: &[u8]) -> HostResult<()> {
    // SAFETY: the host reads the slice given.
    done(unsafe { proxy_enqueue_shared_queue(queue, value.as_ptr(), value.len()) })
}

/// Takes a value out of a queue; an error when it is empty.
pub fn dequeue(queue: u32) -> HostResult<Option<Vec<u8>>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host writes a pointer and a size to the addresses given.
    let status = unsafe { proxy_dequeue_shared_queue(queue, &mut data, &mut size) };
    taken(status, data, size)
}

/// Makes the calls that follow act on that context. An error means that it is gone.
pub fn set_effective_context(context: u32) -> HostResult<()> {
    // SAFETY: passes a number.
    done(unsafe { proxy_set_effective_context(context) })
}

/// Ends the effective root context after its `on_done` said that it was not ready.
pub fn root_done() -> HostResult<()> {
    // SAFETY: passes nothing.
    done(unsafe { proxy_done() })
}

/// Defines a metric, or finds the one of that name.
pub fn define_metric(kind: MetricType, name: &str) -> HostResult<u32> {
    let mut id = 0;
    // SAFETY: the host reads the name and writes a number to the address given.
    let status = unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &mut id) };
    done(status).map(|()| id)
}

/// Adds to a counter, or moves a gauge.
pub fn increment_metric(id: u32, offset: i64) {
    // SAFETY: passes numbers.
    unsafe { proxy_increment_metric(id, offset) };
}

/// Adds one value to a histogram.
pub fn record_metric(id: u32, value: u64) {
    // SAFETY: passes numbers.
    unsafe { proxy_record_metric(id, value) };
}

/// The plugin configuration, while the root is being configured.
pub fn plugin_configuration(size: usize) -> HostResult<Vec<u8>> {
    buffer(BufferType::PluginConfiguration, 0, size)
}
