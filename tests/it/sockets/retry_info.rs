//! A protobuf decoder for a `google.rpc.Status` that contains a `google.rpc.RetryInfo`.

use std::time::Duration;

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
            Value::Bytes(_) => panic!("expected a number, found {self:?}"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) => panic!("expected bytes, found {self:?}"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("the message ends within a varint");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint is longer than ten bytes")
}

/// Returns the numbers and values of the fields in a message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at_checked(length).expect("the message ends within a field");
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("unexpected wire type {other}"),
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
        let [(1, code), (2, message), (3, any)] = &status[..] else {
            panic!("expected a google.rpc.Status, found {status:?}")
        };
        let any = fields(any.bytes());
        let [(1, kind), (2, info)] = &any[..] else { panic!("expected a google.protobuf.Any, found {any:?}") };
        assert_eq!(text(kind), "type.googleapis.com/google.rpc.RetryInfo");
        let info = fields(info.bytes());
        let [(1, delay)] = &info[..] else { panic!("expected a google.rpc.RetryInfo, found {info:?}") };
        // A `google.protobuf.Duration` omits fields that are zero.
        let (mut seconds, mut nanos) = (0, 0);
        for (field, value) in fields(delay.bytes()) {
            match field {
                1 => seconds = value.number(),
                2 => nanos = u32::try_from(value.number()).unwrap(),
                other => panic!("expected a google.protobuf.Duration, found field {other}"),
            }
        }
        Details { code: code.number(), message: text(message), retry_delay: Duration::new(seconds, nanos) }
    }
}
