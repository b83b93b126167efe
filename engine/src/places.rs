//! The places of the keys that a batch has touched, which are a list of tuples where the engine is not installed.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice, PyTuple};

use crate::shard::hash_of;

/// (Encoded key, its value or `None` as it was looked up, index of its shard), in the order of their look-ups. Keys and
/// values are in one block of memory; the tuples are made when they are read.
#[pyclass(module = "snapreplay_engine")]
#[derive(Default)]
pub struct Places {
    data: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    key_bytes: usize,
    old_bytes: Option<usize>, // of the value, behind the key
    index: usize,
    hash: u32,
}

/// A place, as it is read by the engine.
pub struct Place<'a> {
    pub key: &'a [u8],
    pub old: Option<&'a [u8]>,
    pub index: usize,
    pub hash: u32, // of the key, in its shard
}

impl Places {
    pub fn add(&mut self, Place { key, old, index, hash }: Place<'_>) {
        let start = self.data.len();
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(old.unwrap_or_default());
        self.slots.push(Slot { start, key_bytes: key.len(), old_bytes: old.map(<[u8]>::len), index, hash });
    }

    pub fn each(&self) -> impl Iterator<Item = Place<'_>> {
        self.slots.iter().map(|slot| {
            let (key, rest) = self.data[slot.start..].split_at(slot.key_bytes);
            Place { key, old: slot.old_bytes.map(|length| &rest[..length]), index: slot.index, hash: slot.hash }
        })
    }

    fn part(&self, start: usize, stop: usize) -> Places {
        let slots = self.slots.get(start..stop).unwrap_or_default();
        let begin = slots.first().map_or(0, |slot| slot.start);
        let end = slots.last().map_or(0, |slot| slot.start + slot.key_bytes + slot.old_bytes.unwrap_or(0));
        let slots = slots.iter().map(|slot| Slot { start: slot.start - begin, ..*slot }).collect();
        Places { data: self.data[begin..end].to_vec(), slots }
    }
}

#[pymethods]
impl Places {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.slots.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = PyList::empty(py);
        for Place { key, old, index, .. } in self.each() {
            found.append((PyBytes::new(py, key), old.map(|each| PyBytes::new(py, each)), index))?;
        }
        Ok(found.try_iter()?.into_any())
    }

    /// A part.
    fn __getitem__(&self, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let found = slice.indices(isize::try_from(self.slots.len())?)?;
        if found.step != 1 {
            return Err(PyIndexError::new_err("a part of places has no gaps"));
        }
        Ok(self.part(usize::try_from(found.start)?, usize::try_from(found.stop)?))
    }

    /// The encoded keys.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.each().map(|each| PyBytes::new(py, each.key)).collect::<Vec<_>>())
    }

    /// The values by their keys.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for Place { key, old, .. } in self.each() {
            found.set_item(PyBytes::new(py, key), old.map(|each| PyBytes::new(py, each)))?;
        }
        Ok(found)
    }

    /// Moves all of them into another one.
    fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    fn append(&mut self, place: &Bound<'_, PyTuple>) -> PyResult<()> {
        let (key, old, index): (Bound<'_, PyBytes>, Option<Bound<'_, PyBytes>>, usize) = place.extract()?;
        let (key, old) = (key.as_bytes(), old.as_ref().map(|each| each.as_bytes()));
        self.add(Place { key, old, index, hash: hash_of(key) });
        Ok(())
    }

    fn extend(&mut self, places: &Bound<'_, PyAny>) -> PyResult<()> {
        for place in places.try_iter()? {
            self.append(place?.cast::<PyTuple>()?)?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        *self = Self::default(); // with its memory: a large batch may have been one of a kind
    }
}
