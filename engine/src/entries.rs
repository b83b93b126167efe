//! Entries of a map: digests and writes, as in `snapreplay/state/digest.py` and `shards.py`.

use crate::shard::{Shard, prefetch_entries};
use pyo3::exceptions::PyValueError;
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

/// Writes the values of keys, each at its (key, old value, index), to `targets[index]`, and returns by how much this
/// changes the number of entries, the two sums of the digest, and the bytes. Keys whose value stays are added to
/// `unchanged`.
#[pyfunction]
pub fn write<'py>(
    places: &Bound<'py, PyList>,
    values: &Bound<'py, PyList>,
    targets: &Bound<'py, PyList>,
    shards: &Bound<'py, PyList>,
    unchanged: &Bound<'py, PyList>,
) -> PyResult<(i64, u64, u64, i64)> {
    let (mut count, mut a, mut b, mut size) = (0i64, 0u64, 0u64, 0i64);
    if places.len() != values.len() {
        return Err(PyValueError::new_err("as many values as places are needed"));
    }
    let mut slots = Vec::with_capacity(places.len());
    for place in places {
        let place = place.cast::<PyTuple>()?;
        let (old, index) = (bytes(place.get_item(1)?)?, place.get_borrowed_item(2)?.extract::<usize>()?);
        slots.push((place.get_item(0)?.cast_into::<PyBytes>()?, old, index, targets.get_item(index)?));
    }
    let entries = slots.iter().filter_map(|(key, _, _, target)| Some((target.cast::<Shard>().ok()?, key)));
    let entries: Vec<_> = entries.filter_map(|(shard, key)| Some((shard.try_borrow().ok()?, key.as_bytes()))).collect();
    prefetch_entries(&entries);
    drop(entries);
    for ((key, old, index, target), new) in slots.into_iter().zip(values) {
        let new = bytes(new)?;
        if old.as_ref().map(|each| each.as_bytes()) == new.as_ref().map(|each| each.as_bytes()) {
            unchanged.append(key)?;
            continue;
        }
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
