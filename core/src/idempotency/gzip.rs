//! Reads gzip (RFC 1952), for replays to clients that cannot. Of the format's crates, the one that only inflates costs a
//! quarter of the module size of those that know the frame around it, which is small.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const FLAG_HEADER_CHECKSUM: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0b1110_0000;
const CRC_POLYNOMIAL: u32 = 0xedb8_8320;

/// The content; `None` when it is larger than the bound, or is not gzip, or is of several members, which no web server
/// sends.
pub(super) fn decode(bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let (deflated, &[c0, c1, c2, c3, s0, s1, s2, s3]) = after_header(bytes)?.split_last_chunk::<8>()?;
    let length = usize::try_from(u32::from_le_bytes([s0, s1, s2, s3])).ok().filter(|length| *length <= bytes_max)?;
    let content = inflate(deflated, length)?;
    (crc_32(&content) == u32::from_le_bytes([c0, c1, c2, c3])).then_some(content)
}

/// The content of that length which all of these bytes unfold to.
fn inflate(deflated: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut content = vec![0; length];
    let mut state = Box::<DecompressorOxide>::default();
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let ended = decompress(&mut state, deflated, &mut content, 0, flags);
    (ended == (TINFLStatus::Done, deflated.len(), length)).then_some(content)
}

fn after_header(bytes: &[u8]) -> Option<&[u8]> {
    let (&[.., flags, _, _, _, _, _, _], mut rest) = bytes.strip_prefix(&MAGIC)?.split_first_chunk::<7>()?;
    if flags & FLAGS_RESERVED != 0 {
        return None;
    }
    if flags & FLAG_EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = rest.split_at_checked(end)?.1.split_first()?.1;
        }
    }
    if flags & FLAG_HEADER_CHECKSUM != 0 { rest.get(2..) } else { Some(rest) }
}

fn crc_32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ CRC_POLYNOMIAL } else { crc >> 1 };
    let table = [(); 256].map({
        let mut next = 0..;
        move |()| (0..8).fold(next.next().unwrap_or(0), |crc, _| step(crc))
    });
    let of = |index: u32| table.get(usize::try_from(index & 0xff).unwrap_or(0)).copied().unwrap_or(0);
    !bytes.iter().fold(!0, |crc, byte| of(crc ^ u32::from(*byte)) ^ (crc >> 8))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use arbtest::arbtest;

    /// The content as gzip, with these flags and what they promise between header and content.
    pub fn encode(content: &[u8], flags: u8, fields: &[u8]) -> Vec<u8> {
        let header = [&MAGIC[..], &[flags, 0, 0, 0, 0, 0, 255], fields].concat();
        let deflated = miniz_oxide::deflate::compress_to_vec(content, 6);
        let trailer = [crc_32(content).to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        [header, deflated, trailer].concat()
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc_32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc_32(b""), 0);
    }

    #[test]
    fn what_another_program_wrote_is_read() {
        // printf hello | gzip -n
        let bytes =
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00";
        assert_eq!(decode(bytes, 100).as_deref(), Some(&b"hello"[..]));
    }

    #[test]
    fn the_fields_of_the_header_are_skipped() {
        let all = FLAG_EXTRA | FLAG_NAME | FLAG_COMMENT | FLAG_HEADER_CHECKSUM;
        let rows: [(u8, &[u8]); 6] = [
            (0, b""),
            (1, b""),
            (FLAG_EXTRA, b"\x03\x00abc"),
            (FLAG_NAME, b"a.txt\0"),
            (FLAG_HEADER_CHECKSUM, b"\x12\x34"),
            (all, b"\x00\x00name\0comment\0\x12\x34"),
        ];
        for (flags, fields) in rows {
            assert_eq!(decode(&encode(b"content", flags, fields), 100).as_deref(), Some(&b"content"[..]), "{flags}");
        }
    }

    #[test]
    fn nothing_is_made_of_damaged_or_large_content() {
        let bytes = encode(&[b'a'; 1000], 0, b"");
        assert!(decode(&bytes, 1000).is_some());
        assert_eq!(decode(&bytes, 999), None);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], 1000), None, "cut at {end}");
        }
        for place in (0..4).chain(10..bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x20;
            assert_eq!(decode(&damaged, 1000), None, "damaged at {place}");
        }
        assert_eq!(decode(&[bytes.clone(), bytes].concat(), 4000), None);
    }

    #[test]
    fn any_content_is_read_again_and_any_bytes_are_read_without_harm() {
        arbtest(|input| {
            let content: Vec<u8> = input.arbitrary()?;
            assert_eq!(decode(&encode(&content, 0, b""), content.len()).as_ref(), Some(&content));
            assert!(decode(&content, 100).is_none_or(|decoded| decoded.len() <= 100));
            Ok(())
        })
        .budget_ms(300)
        .run();
    }
}
