//! Entries of a map: digests and writes, as in `snapreplay/state/digest.py` and `shards.py`.

use crate::shard::{Shard, prefetch_entries};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyDict, PyList, PyTuple};
use xxhash_rust::xxh64::xxh64;

const SEED: u64 = 42;

fn hashes(key: &[u8], value: &[u8]) -> (u64, u64) {
    (xxh64(value, xxh64(key, SEED)), xxh64(key, xxh64(value, SEED)))
}

/// The number of entries, pairs of key and value, and the two sums of their hashes.
#[pyfunction]
pub fn digest(entries: &Bound<'_, PyAny>) -> PyResult<(usize, u64, u64)> {
    let (mut count, mut a, mut b) = (0, 0u64, 0u64);
    for entry in entries.try_iter()? {
        let (key, value): (Bound<'_, PyBytes>, Bound<'_, PyBytes>) = entry?.extract()?;
        let (of_a, of_b) = hashes(key.as_bytes(), value.as_bytes());
        (count, a, b) = (count + 1, a.wrapping_add(of_a), b.wrapping_add(of_b));
    }
    Ok((count, a, b))
}

/// Writes a block of ((key, old, index), new) to `targets[index]` and returns by how much it changes the number of
/// entries, the two sums of the digest, and the bytes. Keys whose value stays are added to `unchanged`.
#[pyfunction]
pub fn write<'py>(
    block: &Bound<'py, PyList>,
    targets: &Bound<'py, PyList>,
    shards: &Bound<'py, PyList>,
    unchanged: &Bound<'py, PyList>,
) -> PyResult<(i64, u64, u64, i64)> {
    let (mut count, mut a, mut b, mut size) = (0i64, 0u64, 0u64, 0i64);
    let mut places = Vec::with_capacity(block.len());
    for entry in block {
        let place = entry.cast::<PyTuple>()?.get_item(0)?.cast_into::<PyTuple>()?;
        let target = targets.get_item(place.get_item(2)?.extract()?)?.cast_into::<Shard>();
        places.push((place.get_item(0)?.cast_into::<PyBytes>()?, target.ok()));
    }
    let entries = places.iter().filter_map(|(key, target)| Some((target.as_ref()?.try_borrow().ok()?, key.as_bytes())));
    prefetch_entries(&entries.collect::<Vec<_>>());
    for entry in block {
        let entry = entry.cast_into::<PyTuple>()?;
        let place = entry.get_borrowed_item(0)?.cast::<PyTuple>()?.to_owned();
        let (key, old) = (place.get_item(0)?.cast_into::<PyBytes>()?, bytes(place.get_item(1)?)?);
        let new = bytes(entry.get_item(1)?)?;
        if old.as_ref().map(|each| each.as_bytes()) == new.as_ref().map(|each| each.as_bytes()) {
            unchanged.append(key)?;
            continue;
        }
        let index: usize = place.get_item(2)?.extract()?;
        let target = targets.get_item(index)?;
        let length = key.as_bytes().len() as i64;
        match &new {
            Some(new) => {
                let (of_a, of_b) = hashes(key.as_bytes(), new.as_bytes());
                (a, b) = (a.wrapping_add(of_a), b.wrapping_add(of_b));
                size += new.as_bytes().len() as i64;
                match target.cast::<Shard>() {
                    Ok(shard) => shard.try_borrow_mut()?.put(key.as_bytes(), new.as_bytes())?,
                    Err(_) => target.cast::<PyDict>()?.set_item(&key, new)?,
                }
            }
            None => {
                count -= 1;
                size -= length;
                if target.is(&shards.get_item(index)?) {
                    target.del_item(&key)?
                } else {
                    target.set_item(&key, key.py().None())?
                }
            }
        }
        match &old {
            Some(old) => {
                let (of_a, of_b) = hashes(key.as_bytes(), old.as_bytes());
                (a, b) = (a.wrapping_sub(of_a), b.wrapping_sub(of_b));
                size -= old.as_bytes().len() as i64;
            }
            None => {
                count += 1;
                size += length;
            }
        }
    }
    Ok((count, a, b, size))
}

fn bytes(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyBytes>>> {
    Ok(if value.is_none() { None } else { Some(value.cast_into::<PyBytes>()?) })
}
