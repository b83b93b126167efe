//! Entries of a map: digests and writes, as in `snapreplay/state/digest.py` and `shards.py`.

use crate::places::Places;
use crate::shard::{Shard, hash_of, prefetch_entries, shard_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyDict, PyList};
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

/// By how much the number of entries, the two sums of their digest and their bytes change.
#[derive(Default)]
pub struct Sums {
    count: i64,
    a: u64,
    b: u64,
    size: i64,
}

impl Sums {
    /// A key gets another value; `None`: it has none.
    pub fn replace(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        if let Some(new) = new {
            let (of_a, of_b) = hashes(key, new);
            (self.a, self.b) = (self.a.wrapping_add(of_a), self.b.wrapping_add(of_b));
            self.count += 1;
            self.size += (key.len() + new.len()) as i64;
        }
        if let Some(old) = old {
            let (of_a, of_b) = hashes(key, old);
            (self.a, self.b) = (self.a.wrapping_sub(of_a), self.b.wrapping_sub(of_b));
            self.count -= 1;
            self.size -= (key.len() + old.len()) as i64;
        }
    }

    fn all(self) -> (i64, u64, u64, i64) {
        (self.count, self.a, self.b, self.size)
    }
}

/// Writes the values of keys, each at its (key, old value, index), to `targets[index]`, and returns by how much this
/// changes the number of entries, the two sums of the digest, and the bytes. Keys whose value stays are added to
/// `unchanged`. `places`: `Places`, or a list of tuples.
#[pyfunction]
pub fn write<'py>(
    places: &Bound<'py, PyAny>,
    values: &Bound<'py, PyList>,
    targets: &Bound<'py, PyList>,
    shards: &Bound<'py, PyList>,
    unchanged: &Bound<'py, PyList>,
) -> PyResult<(i64, u64, u64, i64)> {
    let writing = Writing { values, targets, shards, unchanged };
    if let Ok(places) = places.cast::<Places>() {
        let places = places.try_borrow()?;
        let entries = places.each().map(|each| Entry {
            object: None,
            key: each.key,
            old: each.old,
            index: each.index,
            hash: each.hash,
        });
        return writing.write(entries.collect());
    }
    let mut slots = Vec::with_capacity(values.len());
    for place in places.cast::<PyList>()? {
        slots.push(place.extract::<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, usize)>()?);
    }
    let entries = slots.iter().map(|(object, old, index)| {
        let (key, old) = (object.as_bytes(), old.as_ref().map(|each| each.as_bytes()));
        Entry { object: Some(object), key, old, index: *index, hash: hash_of(key) }
    });
    writing.write(entries.collect())
}

/// Writes changes to the shards of their keys, and returns what `write` returns. `None`: Python must do it.
#[pyfunction]
pub fn change(changes: &Bound<'_, PyDict>, targets: &Bound<'_, PyList>) -> PyResult<Option<(i64, u64, u64, i64)>> {
    let mut known = Vec::with_capacity(changes.len());
    for (key, new) in changes {
        let Ok(key) = key.cast_into::<PyBytes>() else { return Ok(None) };
        let target = targets.get_item(shard_of(key.as_bytes(), targets.len()))?;
        let (Ok(shard), Ok(new)) = (target.cast_into::<Shard>(), bytes(new)) else { return Ok(None) };
        known.push((shard, key, new));
    }
    let entries = known.iter().filter_map(|(shard, key, _)| Some((shard.try_borrow().ok()?, hash_of(key.as_bytes()))));
    prefetch_entries(&entries.collect::<Vec<_>>());
    let mut sums = Sums::default();
    for (shard, key, new) in &known {
        shard.try_borrow_mut()?.change(key.as_bytes(), new.as_ref().map(|each| each.as_bytes()), &mut sums)?;
    }
    Ok(Some(sums.all()))
}

fn bytes(value: Bound<'_, PyAny>) -> PyResult<Option<Bound<'_, PyBytes>>> {
    Ok(if value.is_none() { None } else { Some(value.cast_into::<PyBytes>()?) })
}

/// An entry to write. `object`: of its key, which a dict holds; `None`: it is made for it.
struct Entry<'a, 'py> {
    object: Option<&'a Bound<'py, PyBytes>>,
    key: &'a [u8],
    old: Option<&'a [u8]>,
    index: usize,
    hash: u32,
}

impl<'py> Entry<'_, 'py> {
    fn object(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.object.map_or_else(|| PyBytes::new(py, self.key), Clone::clone)
    }
}

struct Writing<'a, 'py> {
    values: &'a Bound<'py, PyList>,
    targets: &'a Bound<'py, PyList>,
    shards: &'a Bound<'py, PyList>,
    unchanged: &'a Bound<'py, PyList>,
}

impl Writing<'_, '_> {
    fn write(&self, entries: Vec<Entry<'_, '_>>) -> PyResult<(i64, u64, u64, i64)> {
        let (py, mut sums) = (self.values.py(), Sums::default());
        if entries.len() != self.values.len() {
            return Err(PyValueError::new_err("as many values as places are needed"));
        }
        let targets = entries.iter().map(|each| self.targets.get_item(each.index)).collect::<PyResult<Vec<_>>>()?;
        let known = entries.iter().zip(&targets);
        let known =
            known.filter_map(|(each, target)| Some((target.cast::<Shard>().ok()?.try_borrow().ok()?, each.hash)));
        prefetch_entries(&known.collect::<Vec<_>>());
        for ((entry, target), new) in entries.iter().zip(targets).zip(self.values) {
            let Entry { key, old, index, hash, .. } = *entry;
            let new = bytes(new)?;
            let value = new.as_ref().map(|each| each.as_bytes());
            if old == value {
                self.unchanged.append(entry.object(py))?;
                continue;
            }
            sums.replace(key, old, value);
            match (value, target.cast::<Shard>()) {
                (Some(value), Ok(shard)) => shard.try_borrow_mut()?.put(hash, key, value)?,
                (Some(_), Err(_)) => target.cast::<PyDict>()?.set_item(entry.object(py), new)?,
                (None, _) if target.is(&self.shards.get_item(index)?) => target.del_item(entry.object(py))?,
                (None, _) => target.set_item(entry.object(py), py.None())?,
            }
        }
        Ok(sums.all())
    }
}
