//! `google.rpc.Status` with a `google.rpc.RetryInfo`, read by hand from protobuf's wire format.

use std::time::Duration;

/// What the bytes of `grpc-status-details-bin` say.
#[derive(Debug, PartialEq)]
pub(crate) struct Details {
    pub(crate) code: u64,
    pub(crate) message: String,
    pub(crate) retry_delay: Duration,
}

#[derive(Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("{self:?} is no number"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) => panic!("{self:?} is no bytes"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a varint that ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes")
}

/// Numbers and contents of a message's fields, in their order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at_checked(length).expect("as many bytes as announced");
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("wire type {other} is in none of these messages"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn text(value: &Value<'_>) -> String {
    String::from_utf8(value.bytes().to_vec()).unwrap()
}

impl Details {
    pub(crate) fn decode(bytes: &[u8]) -> Details {
        let status = fields(bytes);
        let [(1, code), (2, message), (3, any)] = &status[..] else { panic!("no google.rpc.Status: {status:?}") };
        let any = fields(any.bytes());
        let [(1, kind), (2, info)] = &any[..] else { panic!("no google.protobuf.Any: {any:?}") };
        assert_eq!(text(kind), "type.googleapis.com/google.rpc.RetryInfo");
        let info = fields(info.bytes());
        let [(1, delay)] = &info[..] else { panic!("no google.rpc.RetryInfo: {info:?}") };
        // google.protobuf.Duration, of which a zero is left out.
        let (mut seconds, mut nanos) = (0, 0);
        for (field, value) in fields(delay.bytes()) {
            match field {
                1 => seconds = value.number(),
                2 => nanos = u32::try_from(value.number()).unwrap(),
                other => panic!("no google.protobuf.Duration: field {other}"),
            }
        }
        Details { code: code.number(), message: text(message), retry_delay: Duration::new(seconds, nanos) }
    }
}
