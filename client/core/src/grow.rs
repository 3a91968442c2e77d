//! How lists with an entry a key grow: by a quarter, not by doubling, because there may be a hundred
//! thousand entries and a client's memory is bounded.

/// Makes room for at least `more` entries.
pub(crate) fn make_room<T>(list: &mut Vec<T>, more: usize) {
    let free = list.capacity() - list.len();
    if free < more {
        list.reserve_exact((list.len() / 4).max(more).max(64));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::make_room;

    #[test]
    fn a_list_has_at_most_a_quarter_more_than_it_needs() {
        let mut list: Vec<u8> = Vec::new();
        let mut moves = 0;
        for i in 0..100_000 {
            let before = list.capacity();
            make_room(&mut list, 1);
            list.push(0);
            moves += u32::from(list.capacity() != before);
            assert!(list.capacity() <= i + i / 4 + 65, "{} for {i}", list.capacity());
        }
        assert!(moves < 50, "{moves}");
    }
}
