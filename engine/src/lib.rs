//! The compiled engine of snapreplay: what costs most per record, and nothing that decides.
//!
//! Every function has a Python twin, which is the reference. One that meets anything unusual returns `None`, and the
//! twin does the work: an error is always Python's own. There is no `unsafe`, and arithmetic that could overflow is
//! checked: a panic would reach Python as an exception, but nothing here relies on that.

#![deny(unsafe_code)]

mod entries;
mod outputs;
mod places;
mod records;
mod run;
mod sent;
mod shard;
mod staging;

use pyo3::prelude::*;

#[pymodule]
mod snapreplay_engine {
    /// Compared by `snapreplay/engine.py`. Raise both when a function changes its meaning.
    #[pymodule_export]
    const INTERFACE: u32 = 14;
    #[pymodule_export]
    use super::entries::{change, digest, write};
    #[pymodule_export]
    use super::outputs::pack;
    #[pymodule_export]
    use super::places::Places;
    #[pymodule_export]
    use super::records::{RawRecord, crc32c, records};
    #[pymodule_export]
    use super::run::{Getter, LookUp, apply};
    #[pymodule_export]
    use super::sent::Outputs;
    #[pymodule_export]
    use super::shard::{Shard, prefetch};
    #[pymodule_export]
    use super::staging::{MutableObjects, are_flat, encode};
}
