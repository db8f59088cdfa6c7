//! The programs as real processes.
