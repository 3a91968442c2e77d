//! The one place that chooses between the standard atomics and loom's, so that loom explores the
//! very code that ships.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Takes the lock even if a holder panicked: all that these locks guard is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock if nobody holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

use std::sync::{PoisonError, TryLockError};

#[cfg(loom)]
use loom::sync::MutexGuard;
#[cfg(not(loom))]
use std::sync::MutexGuard;
