//! The rivals: other people's laws, each as a [`Fleet`] on the same world, workload and links.
//!
//! A rival is one object that stands for all its nodes. It decides requests in [`Fleet::decide`]
//! (at once, or later through [`Net::answer`]), sends its own messages with [`Net::send`] (between
//! client and aggregator, aggregator and controller, or client and controller), and wakes itself
//! with [`Net::set_timer`]. Each is in a file of its own, which says where it comes from and what
//! its parameters are; those stand under `rivals` in a scenario.
//!
//! [`Net::answer`]: crate::Net::answer
//! [`Net::send`]: crate::Net::send
//! [`Net::set_timer`]: crate::Net::set_timer
//! [`Fleet`]: crate::Fleet
//! [`Fleet::decide`]: crate::Fleet::decide

mod batch;
pub(crate) mod batch_bucket;
pub(crate) mod batch_rate;
pub(crate) mod batch_window;
mod design;
pub(crate) mod envoy_redis;
mod keys;
mod parameters;
pub(crate) mod prefetch;
pub(crate) mod proxy_bucket;
mod window;

pub(crate) use batch::Batch;
pub use parameters::{
    BatchBucket, BatchRate, BatchWindow, EnvoyRedis, Prefetch, ProxyBucket, Rivals, Route, Sharing,
    Store,
};
