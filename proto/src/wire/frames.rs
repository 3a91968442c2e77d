//! Messages that are larger than a frame, cut into chunks and put together again.

use bytes::{Bytes, BytesMut};
use prost::Message;
use sluicegate_model::{Down, Up};

use super::malformed::{Malformed, Problem};
use super::{decode_down, decode_up};
use crate::v1;

/// The size in bytes from which a message goes out in pieces, and the size of a piece. Well below
/// the largest frame that a receiver accepts ([`crate::transport::MAX_FRAME_BYTES`]).
pub const CHUNK_BYTES: usize = 1 << 20;
/// The largest message up, put together, in bytes.
pub const MAX_UP_BYTES: usize = 32 << 20;
/// The largest message down, put together, in bytes.
pub const MAX_DOWN_BYTES: usize = 64 << 20;

/// One message of the wire as a stream carries it: [`v1::Up`] or [`v1::Down`].
pub trait Frame: Message + Default + Sized {
    /// What it means.
    type Model;
    /// The largest message, put together, in bytes.
    const MOST_BYTES: usize;
    /// The name of the message, for errors.
    const NAME: &str;

    /// A frame that holds `chunk`.
    fn of_chunk(chunk: v1::Chunk) -> Self;
    /// The chunk that this frame holds, or else the frame.
    ///
    /// # Errors
    /// The frame itself, if it is no chunk.
    fn into_chunk(self) -> Result<v1::Chunk, Box<Self>>;
    /// What the whole message `self` means.
    ///
    /// # Errors
    /// Says which field breaks the protocol.
    fn decode_model(self) -> Result<Self::Model, Malformed>;
}

impl Frame for v1::Up {
    type Model = Up;
    const MOST_BYTES: usize = MAX_UP_BYTES;
    const NAME: &str = "up";

    fn of_chunk(chunk: v1::Chunk) -> Self {
        Self { message: Some(v1::up::Message::Chunk(chunk)) }
    }

    fn into_chunk(self) -> Result<v1::Chunk, Box<Self>> {
        match self.message {
            Some(v1::up::Message::Chunk(chunk)) => Ok(chunk),
            _ => Err(Box::new(self)),
        }
    }

    fn decode_model(self) -> Result<Up, Malformed> {
        decode_up(self)
    }
}

impl Frame for v1::Down {
    type Model = Down;
    const MOST_BYTES: usize = MAX_DOWN_BYTES;
    const NAME: &str = "down";

    fn of_chunk(chunk: v1::Chunk) -> Self {
        Self { message: Some(v1::down::Message::Chunk(chunk)) }
    }

    fn into_chunk(self) -> Result<v1::Chunk, Box<Self>> {
        match self.message {
            Some(v1::down::Message::Chunk(chunk)) => Ok(chunk),
            _ => Err(Box::new(self)),
        }
    }

    fn decode_model(self) -> Result<Down, Malformed> {
        decode_down(self)
    }
}

/// One message as the frames that carry it: itself, or chunks.
#[derive(Debug, Clone)]
pub struct Frames<F> {
    whole: Option<F>,
    rest: Bytes,
}

impl<F: Frame> Frames<F> {
    /// The frames of `message`.
    #[must_use]
    pub fn of(message: F) -> Self {
        if message.encoded_len() <= CHUNK_BYTES {
            return Self { whole: Some(message), rest: Bytes::new() };
        }
        Self { whole: None, rest: message.encode_to_vec().into() }
    }
}

impl<F: Frame> Iterator for Frames<F> {
    type Item = F;

    fn next(&mut self) -> Option<F> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        if self.rest.is_empty() {
            return None;
        }
        let data = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        Some(F::of_chunk(v1::Chunk { data, last: self.rest.is_empty() }))
    }
}

/// Puts the frames of one stream together.
#[derive(Debug)]
pub struct Decoder<F> {
    pending: BytesMut,
    frame: std::marker::PhantomData<fn() -> F>,
}

impl<F> Default for Decoder<F> {
    fn default() -> Self {
        Self { pending: BytesMut::new(), frame: std::marker::PhantomData }
    }
}

impl<F: Frame> Decoder<F> {
    /// Bytes of a message that is not complete yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Takes the next frame of the stream in; gives the message that it completes, if it does.
    ///
    /// # Errors
    /// Says which field breaks the protocol. The stream is of no use any more.
    pub fn take_in(&mut self, frame: F) -> Result<Option<F::Model>, Malformed> {
        let fail = |problem| Err(Malformed::new(format!("{}.chunk", F::NAME), problem));
        let chunk = match frame.into_chunk() {
            Ok(chunk) => chunk,
            Err(whole) if self.pending.is_empty() => return whole.decode_model().map(Some),
            Err(_) => {
                return fail(Problem::NotAllowed {
                    found: "a whole message".to_owned(),
                    allowed: "a further chunk of the message that was begun",
                });
            }
        };
        if chunk.data.is_empty() {
            return fail(Problem::Missing);
        }
        let found = self.pending.len() + chunk.data.len();
        if found > F::MOST_BYTES {
            return fail(Problem::TooLong { found, most: F::MOST_BYTES });
        }
        self.pending.extend_from_slice(&chunk.data);
        if !chunk.last {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.pending).freeze();
        match F::decode(bytes) {
            Ok(whole) => whole.decode_model().map(Some),
            Err(e) => fail(Problem::Undecodable(e.to_string())),
        }
    }
}
