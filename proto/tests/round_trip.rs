//! What is encoded decodes to the same, whole or in pieces; and nothing that arrives makes a decoder
//! panic.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use sluicegate_model::{Report, Up};
use sluicegate_proto::v1;
use sluicegate_proto::wire::{
    CHUNK_BYTES, Decoder, DownEncoder, Frames, Malformed, check_service, decode_down, decode_up,
    encode_down, encode_up,
};

proptest! {
    #[test]
    fn ups_come_back(up in support::any_up()) {
        let bytes = encode_up(&up).encode_to_vec();
        let decoded = decode_up(v1::Up::decode(&*bytes).expect("own bytes"));
        prop_assert_eq!(decoded, Ok(up));
    }

    #[test]
    fn downs_come_back(down in support::any_down()) {
        let bytes = encode_down(&down).encode_to_vec();
        let decoded = decode_down(v1::Down::decode(&*bytes).expect("own bytes"));
        prop_assert_eq!(decoded, Ok(down));
    }

    #[test]
    fn an_encoder_with_a_memory_encodes_alike(downs in prop::collection::vec(support::any_down(), 1..8)) {
        let mut encoder = DownEncoder::default();
        for down in downs.iter().chain(&downs) {
            prop_assert_eq!(encoder.encode(down), encode_down(down));
        }
    }

    #[test]
    fn services_fit(service in support::any_service()) {
        prop_assert_eq!(check_service(&service), Ok(()));
    }

    #[test]
    fn random_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        take_in_all(&bytes);
    }

    #[test]
    fn mutated_messages_are_harmless(
        up in support::any_up(),
        down in support::any_down(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        for mut bytes in [encode_up(&up).encode_to_vec(), encode_down(&down).encode_to_vec()] {
            for (at, byte, kind) in &edits {
                let at = at.index(bytes.len() + 1);
                match kind {
                    0 if at < bytes.len() => bytes[at] = *byte,
                    1 if at < bytes.len() => bytes.truncate(at),
                    _ => bytes.insert(at, *byte),
                }
            }
            take_in_all(&bytes);
        }
    }

    #[test]
    fn any_sequence_of_chunks_is_harmless(
        chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..10),
    ) {
        let mut decoder = Decoder::<v1::Up>::default();
        for (data, last) in chunks {
            let chunk = v1::Chunk { data: data.into(), last };
            let _ = decoder.take_in(v1::Up { message: Some(v1::up::Message::Chunk(chunk)) });
        }
    }
}

/// Whatever decodes must also survive being encoded again: what comes out of a decoder is sound.
fn take_in_all(bytes: &[u8]) {
    if let Ok(up) = v1::Up::decode(bytes)
        && let Ok(up) = decode_up(up)
    {
        assert_eq!(decode_up(encode_up(&up)), Ok(up));
    }
    if let Ok(down) = v1::Down::decode(bytes)
        && let Ok(down) = decode_down(down)
    {
        assert_eq!(decode_down(encode_down(&down)), Ok(down));
    }
}

#[test]
fn a_large_message_travels_in_pieces() {
    let (ups, _) = support::examples();
    let Up::Report(example) = &ups[1].1 else { panic!("the second example is a report") };
    let mut large = Report { new_keys: vec![], entries: vec![], ..example.clone() };
    for id in 0..60_000 {
        large.new_keys.push((id, example.new_keys[2].1.clone()));
    }
    let up = Up::Report(large);
    let frames: Vec<v1::Up> = Frames::of(encode_up(&up)).collect();
    assert!(frames.len() >= 2, "{} frames", frames.len());
    assert!(frames.iter().all(|f| f.encoded_len() <= CHUNK_BYTES + 32));

    let mut decoder = Decoder::default();
    let (last, first) = frames.split_last().expect("some");
    for frame in first {
        assert_eq!(decoder.take_in(frame.clone()), Ok(None));
    }
    assert_eq!(decoder.take_in(last.clone()), Ok(Some(up)));

    // A decoder is as good as new after a message, and refuses one inside of another.
    let whole = encode_up(&ups[0].1);
    assert_eq!(decoder.take_in(whole.clone()), Ok(Some(ups[0].1.clone())));
    assert_eq!(decoder.take_in(first[0].clone()), Ok(None));
    let error = decoder.take_in(whole).expect_err("a message inside of another");
    assert_eq!(
        error.to_string(),
        "up.chunk is a whole message, allowed is a further chunk of the message that was begun"
    );
}

#[test]
fn chunks_without_end_are_refused() {
    let data = Bytes::from(vec![0_u8; CHUNK_BYTES]);
    let mut decoder = Decoder::<v1::Up>::default();
    let error: Malformed = (0..100)
        .find_map(|_| {
            let chunk = v1::Chunk { data: data.clone(), last: false };
            let frame = v1::Up { message: Some(v1::up::Message::Chunk(chunk)) };
            decoder.take_in(frame).err()
        })
        .expect("refused before 100 MiB");
    assert_eq!(error.reason(), "too_large");

    let mut decoder = Decoder::<v1::Down>::default();
    let empty = v1::Chunk { data: Bytes::new(), last: false };
    let frame = v1::Down { message: Some(v1::down::Message::Chunk(empty)) };
    assert_eq!(decoder.take_in(frame).expect_err("empty").to_string(), "down.chunk is missing");
}

#[test]
fn directives_and_services_are_encoded_once() {
    let (_, downs) = support::examples();
    let mut encoder = DownEncoder::default();
    let body = |down: v1::Down| match down.message {
        Some(v1::down::Message::Update(u)) => u.directives[0].body.as_ptr(),
        Some(v1::down::Message::Configuration(c)) => c.services[0].as_ptr(),
        _ => panic!("neither"),
    };
    for (_, down) in &downs {
        assert_eq!(body(encoder.encode(down)), body(encoder.encode(down)));
    }
}
