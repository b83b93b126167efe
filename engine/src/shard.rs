//! The committed entries of one shard of a map, as `dict[bytes, bytes]` holds them where the engine is not installed.
//!
//! An entry is one block of memory: the length of its key, the key, the value. A dict needs two objects for it. The blocks
//! are in the order in which their keys came, except that the last one takes the place of a deleted one: neighbours are
//! alike, so a snapshot compresses well, and entries are read in pieces.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use hashbrown::HashTable;
use pyo3::exceptions::{PyKeyError, PyOverflowError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::entries::Sums;
use crate::records::RawRecord;
use crate::sent::{put_bytes, put_text};

/// Keyed per process, as keys come from outside: made to collide, they would make a look-up slow.
static HASHER: OnceLock<RandomState> = OnceLock::new();

/// The length of a key that does not fit into one byte follows in eight.
const LONG: u8 = u8::MAX;

type Block = Box<[u8]>;

#[pyclass(module = "snapreplay_engine")]
#[derive(Default)]
pub struct Shard {
    blocks: Vec<Block>,
    /// The place of each block, and the hash of its key: a table that grows does not read the keys again.
    places: HashTable<(u32, u32)>,
}

pub fn hash_of(key: &[u8]) -> u32 {
    HASHER.get_or_init(RandomState::new).hash_one(key) as u32
}

/// The hash for a table. It takes the highest bits and the lowest ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

fn block_of(key: &[u8], value: &[u8]) -> Block {
    let mut block = Vec::with_capacity(9 + key.len() + value.len());
    match u8::try_from(key.len()) {
        Ok(length) if length < LONG => block.push(length),
        _ => {
            block.push(LONG);
            block.extend_from_slice(&(key.len() as u64).to_le_bytes());
        }
    }
    block.extend_from_slice(key);
    block.extend_from_slice(value);
    block.into_boxed_slice()
}

/// Where key and value begin.
fn starts(block: &[u8]) -> (usize, usize) {
    match block.split_first() {
        Some((&LONG, rest)) => {
            let length = rest.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize);
            (9, 9 + length)
        }
        Some((&length, _)) => (1, 1 + length as usize),
        None => (0, 0),
    }
}

fn key_in(block: &[u8]) -> &[u8] {
    let (key, value) = starts(block);
    &block[key..value]
}

fn value_in(block: &[u8]) -> &[u8] {
    &block[starts(block).1..]
}

impl Shard {
    fn find(&self, hash: u32, key: &[u8]) -> Option<usize> {
        let found = self.places.find(spread(hash), |&(place, _)| key_in(&self.blocks[place as usize]) == key);
        found.map(|&(place, _)| place as usize)
    }

    /// The value of a key with this hash.
    pub fn value(&self, hash: u32, key: &[u8]) -> Option<&[u8]> {
        Some(value_in(&self.blocks[self.find(hash, key)?]))
    }

    /// Sets the value of a key with this hash.
    pub fn put(&mut self, hash: u32, key: &[u8], value: &[u8]) -> PyResult<()> {
        self.put_at(self.find(hash, key), hash, key, value)
    }

    fn put_at(&mut self, found: Option<usize>, hash: u32, key: &[u8], value: &[u8]) -> PyResult<()> {
        if let Some(place) = found {
            let block = &mut self.blocks[place];
            let start = starts(block).1;
            if block.len() - start == value.len() {
                block[start..].copy_from_slice(value);
            } else {
                *block = block_of(key, value);
            }
            return Ok(());
        }
        let place = u32::try_from(self.blocks.len()).map_err(|_| PyOverflowError::new_err("a shard is full"))?;
        self.blocks.push(block_of(key, value));
        self.places.insert_unique(spread(hash), (place, hash), |&(_, hash)| spread(hash));
        Ok(())
    }

    fn remove(&mut self, hash: u32, key: &[u8]) -> bool {
        let blocks = &self.blocks;
        let is_it = |&(place, _): &(u32, u32)| key_in(&blocks[place as usize]) == key;
        let Ok(entry) = self.places.find_entry(spread(hash), is_it) else { return false };
        let (place, _) = entry.remove().0;
        let last = self.blocks.len() - 1;
        if place as usize != last {
            let hash = hash_of(key_in(&self.blocks[last]));
            if let Some(moved) = self.places.find_mut(spread(hash), |&(each, _)| each as usize == last) {
                moved.0 = place;
            }
        }
        self.blocks.swap_remove(place as usize);
        true
    }

    /// Gives a key another value, or none, and adds to `sums` by how much this changes them.
    pub fn change(&mut self, key: &[u8], new: Option<&[u8]>, sums: &mut Sums) -> PyResult<()> {
        let hash = hash_of(key);
        let found = self.find(hash, key);
        let old = found.map(|place| value_in(&self.blocks[place]));
        if old == new {
            return Ok(());
        }
        sums.replace(key, old, new);
        match new {
            Some(new) => self.put_at(found, hash, key, new)?,
            None => _ = self.remove(hash, key),
        }
        Ok(())
    }
}

/// The table of CRC-32.
const CRC: [u32; 256] = {
    let (mut table, mut index) = ([0; 256], 0);
    while index < 256 {
        let (mut rest, mut bit) = (index as u32, 0);
        while bit < 8 {
            rest = (rest >> 1) ^ (0xedb8_8320 & (rest & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = rest;
        index += 1;
    }
    table
};

/// The index of the shard of an encoded key. `count`: of all shards, a power of two.
pub fn shard_of(encoded: &[u8], count: usize) -> usize {
    let crc = !encoded.iter().fold(!0, |crc, byte| CRC[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
    crc as usize & count.wrapping_sub(1)
}

/// Prefetches the entries with the keys of these records, UTF-8 texts or bytes.
#[pyfunction]
pub fn prefetch(records: &Bound<'_, PyList>, are_texts: bool, shards: &Bound<'_, PyList>) -> PyResult<usize> {
    if shards.is_empty() {
        return Ok(0);
    }
    let put = if are_texts { put_text } else { put_bytes };
    let (mut encoded, mut ends) = (Vec::new(), Vec::with_capacity(records.len()));
    for record in records {
        if let Ok(raw) = record.cast_exact::<RawRecord>() {
            let Some(key) = raw.get().key_in(record.py()) else { continue };
            put(&mut encoded, key);
        } else {
            let key = record.getattr(intern!(record.py(), "key"))?;
            let Ok(key) = key.cast::<PyBytes>() else { continue };
            put(&mut encoded, key.as_bytes());
        }
        ends.push(encoded.len());
    }
    let starts = std::iter::once(&0).chain(&ends);
    let keys: Vec<&[u8]> = starts.zip(&ends).map(|(&start, &end)| &encoded[start..end]).collect();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let shard = shards.get_item(shard_of(key, shards.len()))?;
        found.push((shard.cast_into::<Shard>()?, hash_of(key)));
    }
    let entries = found.iter().filter_map(|(shard, hash)| Some((shard.try_borrow().ok()?, *hash)));
    Ok(prefetch_entries(&entries.collect::<Vec<_>>()))
}

/// Reads each entry's place and first bytes into the CPU's caches. One by one, each would wait for memory three times;
/// here the waits overlap. Takes the hash of each key.
///
/// Returns how many probably exist.
pub fn prefetch_entries(entries: &[(PyRef<'_, Shard>, u32)]) -> usize {
    let places = entries.iter().map(|(shard, hash)| {
        // The first that may be it nearly always is it.
        shard.places.find(spread(*hash), |_| true).map(|&(place, _)| place as usize)
    });
    let places: Vec<Option<usize>> = places.collect();
    let blocks: Vec<&[u8]> =
        entries.iter().zip(places).filter_map(|((shard, _), place)| Some(&**shard.blocks.get(place?)?)).collect();
    std::hint::black_box(blocks.iter().fold(0, |sum, block| sum ^ block.first().unwrap_or(&0)));
    blocks.len()
}

#[pymethods]
impl Shard {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.blocks.len()
    }

    fn get<'py>(&self, py: Python<'py>, key: &[u8]) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, self.value(hash_of(key), key)?))
    }

    fn __setitem__(&mut self, key: &[u8], value: &[u8]) -> PyResult<()> {
        self.put(hash_of(key), key, value)
    }

    fn __delitem__(&mut self, key: &Bound<'_, PyBytes>) -> PyResult<()> {
        if self.remove(hash_of(key.as_bytes()), key.as_bytes()) {
            Ok(())
        } else {
            Err(PyKeyError::new_err(key.clone().unbind()))
        }
    }

    fn pop<'py>(
        &mut self,
        py: Python<'py>,
        key: &[u8],
        default: Option<Bound<'py, PyBytes>>,
    ) -> Option<Bound<'py, PyBytes>> {
        let found = self.get(py, key);
        self.remove(hash_of(key), key);
        found.or(default)
    }

    /// At most `most` entries, without the first `start`. The order stays the same until the next write.
    #[pyo3(signature = (start=0, most=usize::MAX))]
    fn items<'py>(&self, py: Python<'py>, start: usize, most: usize) -> PyResult<Bound<'py, PyList>> {
        let found = PyList::empty(py);
        for block in self.blocks.iter().skip(start).take(most) {
            found.append((PyBytes::new(py, key_in(block)), PyBytes::new(py, value_in(block))))?;
        }
        Ok(found)
    }

    /// All entries, in the same order.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for block in &self.blocks {
            found.set_item(PyBytes::new(py, key_in(block)), PyBytes::new(py, value_in(block)))?;
        }
        Ok(found)
    }

    fn update(&mut self, entries: &Bound<'_, PyDict>) -> PyResult<()> {
        if self.blocks.is_empty() {
            self.blocks.reserve_exact(entries.len());
        }
        self.places.reserve(entries.len(), |&(_, hash)| spread(hash));
        for (key, value) in entries {
            let key = key.cast::<PyBytes>()?.as_bytes();
            self.put(hash_of(key), key, value.cast::<PyBytes>()?.as_bytes())?;
        }
        Ok(())
    }
}
