//! The loop, where the floors meet.
