//! Integration tests, one binary: what runs the data of `tests/vectors` and `tests/cases`, and what needs real processes.

mod scenarios;
mod support;
mod vectors;
