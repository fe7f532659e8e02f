//! Messages built in `const` functions, so that a panic shows the same value as the error of the `try_` variant.

pub(crate) struct ConstMessage {
    bytes: [u8; MAX_LEN],
    length: usize,
}

impl ConstMessage {
    pub(crate) const fn new() -> ConstMessage {
        ConstMessage { bytes: [0; MAX_LEN], length: 0 }.text("tollgate: ")
    }

    /// Appends `text`, and replaces each byte that is not printable ASCII with `?`.
    pub(crate) const fn text(self, text: &str) -> ConstMessage {
        self.bytes(text.as_bytes())
    }

    pub(crate) const fn bytes(mut self, bytes: &[u8]) -> ConstMessage {
        let mut i = 0;
        while i < bytes.len() && self.length < MAX_LEN {
            self.bytes[self.length] = if matches!(bytes[i], 0x20..=0x7e) { bytes[i] } else { b'?' };
            self.length += 1;
            i += 1;
        }
        self
    }

    pub(crate) const fn number(self, number: u64) -> ConstMessage {
        let rest = if number < 10 { self } else { self.number(number / 10) };
        let digits = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        rest.text(digits[(number % 10) as usize])
    }

    #[track_caller]
    #[allow(clippy::uninlined_format_args)] // The only form allowed in a `const fn`.
    pub(crate) const fn panic(&self) -> ! {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => panic!("{}", text),
            Err(_) => panic!("tollgate: invalid value"),
        }
    }
}

/// The maximum length in bytes, which is enough for the longest quoted name and the text around it.
const MAX_LEN: usize = 240;

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(message: &ConstMessage) -> &str {
        std::str::from_utf8(&message.bytes[..message.length]).expect("ASCII")
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 999_999_999_999_999, u64::MAX] {
            assert_eq!(
                text_of(&ConstMessage::new().text("rate is ").number(number)),
                format!("tollgate: rate is {number}")
            );
        }
    }

    #[test]
    fn non_ascii_text_is_replaced_and_long_text_is_cut() {
        assert_eq!(text_of(&ConstMessage::new().text("caf\u{e9}\n!")), "tollgate: caf???!");
        assert_eq!(text_of(&ConstMessage::new().text(&"x".repeat(1000)).number(5)).len(), MAX_LEN);
    }
}
