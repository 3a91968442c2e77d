//! Clients, aggregators and a controller together, in virtual time.

mod closed_loop;
mod exactness;
mod faults;
mod world;
