//! What a key and a session's key cost in memory, and that a tick costs the keys in use only.

use super::{admitted, at, entry, hello, node, report, run, send, value};
use crate::node::children::Held;
use crate::node::keys::{Cached, Cold, Hot, User};

#[test]
fn records_are_as_small_as_promised() {
    let index = size_of::<u32>();
    assert!(size_of::<Held>() + size_of::<User>() + index <= 64);
    assert!(size_of::<Hot>() <= 64, "{}", size_of::<Hot>());
    assert!(size_of::<Hot>() + size_of::<Cold>() <= 224, "{}", size_of::<Cold>());
    assert!(size_of::<Cached>() <= 112, "{}", size_of::<Cached>());
}

#[test]
fn an_idle_key_is_on_no_list() {
    let mut n = node();
    n.open(at(0), 1, hello()).expect("taken");
    let names: Vec<_> = (0..1000_u32).map(|i| (i, value("s", "b", &i.to_string()))).collect();
    let entries: Vec<_> = (0..1000).map(|i| entry(i, admitted(1), 1.0)).collect();
    send(&mut n, at(0), 1, report(1, &names, &entries));
    assert_eq!(n.keys_in_use().len(), 1000);
    let quiet: Vec<_> = (0..1000).map(|i| entry(i, admitted(1), 0.0)).collect();
    send(&mut n, at(1), 1, report(2, &names, &quiet));
    run(&mut n, at(3000));
    assert_eq!((n.keys_in_use().len(), n.keys().count()), (0, 1000));
}
