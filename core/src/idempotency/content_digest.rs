//! The digest that a client declares of its body (`Content-Digest`, RFC 9530), for gateways that cannot hold bodies.

use std::convert::Infallible;

use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ParameterVisitor, parameter_visitor_with,
};
use sfv::{BareItemFromInput, KeyRef, Parser};

use super::fingerprint::SHA_256_BYTES;
use crate::identity::hex;

/// The SHA-256 of the body as a `Content-Digest` declares it, in 64 lower-case hex digits; `None` when the field is
/// malformed, or has no such member. Several lines are joined by commas first. Of members of one name the last counts.
pub fn sha_256(value: &[u8]) -> Option<String> {
    Parser::new(value).parse_dictionary_with_visitor(Declared(None)).ok().flatten()
}

struct Declared(Option<String>);

impl<'de> DictionaryVisitor<'de> for Declared {
    type Out = Option<String>;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Infallible> {
        Ok((key.as_str() == "sha-256").then(|| {
            self.0 = None;
            self
        }))
    }

    fn finish(self) -> Result<Option<String>, Infallible> {
        Ok(self.0)
    }
}

impl<'de> EntryVisitor<'de> for &mut Declared {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        Ok(Ignored)
    }
}

impl<'de> ItemVisitor<'de> for &mut Declared {
    type Out = ();
    type Error = Infallible;

    fn bare_item(self, item: BareItemFromInput<'de>) -> Result<impl ParameterVisitor<'de, Out = ()>, Infallible> {
        if let BareItemFromInput::ByteSequence(digest) = item
            && digest.len() == SHA_256_BYTES
        {
            self.0 = Some(hex(&digest));
        }
        Ok(parameter_visitor_with(Ignored, Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::fingerprint::BodyHasher;
    use crate::policy::BodyFingerprint;

    const EMPTY: &str = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";

    #[test]
    fn the_declared_digest_is_that_of_the_body() {
        let computed = BodyHasher::new(BodyFingerprint::AtCompletion).finish();
        assert_eq!(sha_256(EMPTY.as_bytes()), Some(computed));
    }

    #[test]
    fn the_field_is_a_dictionary() {
        let other = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
        let empty = sha_256(EMPTY.as_bytes());
        let rows = [
            (format!("sha-512=:AAAA:, {EMPTY};x=1, md5"), empty.clone()),
            (format!("{other}, {EMPTY}"), empty.clone()),
            (format!("{EMPTY},\t{other}"), sha_256(other.as_bytes())),
            (format!("{EMPTY}, sha-256"), None),
            (format!("{EMPTY}, sha-256=(:AA==:)"), None),
            ("sha-256=:AAAA:".into(), None),
            ("sha-256=47DEQpj8HBSa".into(), None),
            ("sha-512=:AAAA:".into(), None),
            (format!("{EMPTY},"), None),
            (format!("{EMPTY} x"), None),
            (String::new(), None),
        ];
        for (value, expected) in rows {
            assert_eq!(sha_256(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(empty.map(|digest| digest.len()), Some(64));
    }
}
