//! A connection through its whole life, plain and secured.
