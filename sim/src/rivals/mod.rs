//! The rivals: other people's laws, each as a [`Fleet`] on the same world, workload and links.
//!
//! A rival is one object that stands for all its nodes. It decides requests in [`Fleet::decide`]
//! (at once, or later through [`Net::answer`]), sends its own messages with [`Net::send`] (between
//! client and aggregator, aggregator and controller, or client and controller), and wakes itself
//! with [`Net::set_timer`].
//!
//! [`Net::answer`]: crate::Net::answer
//! [`Net::send`]: crate::Net::send
//! [`Net::set_timer`]: crate::Net::set_timer
//! [`Fleet`]: crate::Fleet
//! [`Fleet::decide`]: crate::Fleet::decide
