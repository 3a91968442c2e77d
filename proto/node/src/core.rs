//! What a tier's core must offer for a process to run it.

use sluicegate_law::{Refusal, SessionId, View};
use sluicegate_model::{Down, Hello, Time, Up};

/// A core without I/O. The pump feeds it, drains it, and calls it again when it asks for it.
pub trait Core: Send + 'static {
    /// What the process tells the core besides messages, such as new configuration.
    type Change: Send + 'static;

    /// A child's stream begins with its hello.
    ///
    /// # Errors
    /// The stream is closed with the refusal.
    fn handle_child_open(&mut self, now: Time, id: SessionId, hello: Hello) -> Result<(), Refusal>;

    /// A child says something.
    ///
    /// # Errors
    /// The stream is closed with the refusal.
    fn handle_child(&mut self, now: Time, id: SessionId, up: Up) -> Result<(), Refusal>;

    /// A child's stream is over.
    fn handle_child_close(&mut self, now: Time, id: SessionId);

    /// Something for a child.
    fn poll_child(&mut self) -> Option<(SessionId, Down)>;

    /// The time that was asked for has come.
    fn handle_timeout(&mut self, now: Time);

    /// When to call [`Core::handle_timeout`].
    fn poll_timeout(&self) -> Time;

    /// The process says something.
    fn handle_change(&mut self, now: Time, change: Self::Change);

    /// The state to show.
    fn view(&self) -> View;

    /// Whether a node in this state has what it takes to serve.
    fn is_ready(view: &View) -> bool;

    /// A stream to the parent begins. A node without a parent hears none of these four.
    fn handle_parent_open(&mut self, _now: Time) {}

    /// The parent says something.
    fn handle_parent(&mut self, _now: Time, _down: Down) {}

    /// The stream to the parent is over.
    fn handle_parent_close(&mut self, _now: Time) {}

    /// Something for the parent.
    fn poll_parent(&mut self) -> Option<Up> {
        None
    }
}
