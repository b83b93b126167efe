//! Records of a fetched batch (format 2), as `service/kafka/record_batch.py` reads them.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

/// The CRC-32C of `data[start:end]`.
#[pyfunction]
pub fn crc32c(data: &[u8], start: usize, end: usize) -> Option<u32> {
    Some(::crc32c::crc32c(data.get(start..end)?))
}

/// Of a value: from here on it is copied at once, so that a few large records do not keep the fetch that they are in.
const LARGE_BYTES: usize = 16 * 1024;

/// A record with the attributes of `app.record.RawRecord`, equal to one with the same values. Key and value are made on
/// demand, unless the value is large.
#[pyclass(module = "snapreplay_engine", frozen)]
pub struct RawRecord {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    partition: Py<PyAny>,
    #[pyo3(get)]
    pub offset: i64,
    #[pyo3(get)]
    pub timestamp: i64,
    data: Py<PyBytes>, // of the whole batch; of a large record, its key
    key: Option<Range<usize>>,
    value: Value,
    headers: Option<Py<PyTuple>>,
}

enum Value {
    Null,
    Place(Range<usize>), // in `data`
    Large(Py<PyBytes>),
}

impl RawRecord {
    pub fn key_in<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        self.data.as_bytes(py).get(self.key.clone()?)
    }
}

#[pymethods]
impl RawRecord {
    #[getter]
    pub fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        Some(PyBytes::new(py, self.key_in(py)?))
    }

    #[getter]
    pub fn value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.value {
            Value::Null => None,
            Value::Place(place) => Some(PyBytes::new(py, self.data.as_bytes(py).get(place.clone())?)),
            Value::Large(value) => Some(value.bind(py).clone()),
        }
    }

    #[getter]
    pub fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.headers.as_ref().map_or_else(|| PyTuple::empty(py), |each| each.bind(py).clone())
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<bool> {
        for name in ["topic", "partition", "offset", "timestamp", "key", "value", "headers"] {
            let Some(theirs) = other.getattr_opt(name)? else { return Ok(false) };
            if !slf.getattr(name)?.eq(theirs)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        Ok(format!("RawRecord({}-{}-{})", this.topic, this.partition, this.offset))
    }
}

/// The next `count` records of a batch, without those before offset `from`, and where the one behind them begins. `None`:
/// something is unusual. `data[start:end]` is decompressed. `at_ms`: the time of all records, if the broker has set it.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn records<'py>(
    data: &Bound<'py, PyBytes>,
    start: usize,
    end: usize,
    count: usize,
    base_offset: i64,
    first_ms: i64,
    at_ms: Option<i64>,
    topic: &Bound<'py, PyString>,
    partition: &Bound<'py, PyAny>,
    mut from: i64,
) -> PyResult<Option<(Bound<'py, PyList>, usize)>> {
    let py = topic.py();
    let found = PyList::empty(py);
    let Some(body) = data.as_bytes().get(start..end) else { return Ok(None) };
    let mut rest = Bytes(body);
    for _ in 0..count {
        let Some(record) = rest.record() else { return Ok(None) };
        let time = match at_ms {
            Some(_) => at_ms,
            None => first_ms.checked_add(record.delta_ms),
        };
        let (Some(offset), Some(ms)) = (base_offset.checked_add(record.offset_delta), time) else { return Ok(None) };
        if offset < from {
            continue;
        }
        // Slices of `body`, of which nothing else is known.
        let place = |part: &[u8]| {
            let at = part.as_ptr() as usize - data.as_bytes().as_ptr() as usize;
            at..at + part.len()
        };
        let headers = if record.headers.is_empty() {
            None
        } else {
            let headers = record.headers.iter().map(|(name, data)| (*name, data.map(|each| PyBytes::new(py, each))));
            Some(PyTuple::new(py, headers.collect::<Vec<_>>())?.unbind())
        };
        let (data, key, value) = match record.value {
            Some(value) if value.len() >= LARGE_BYTES => {
                let key = record.key.unwrap_or_default();
                (
                    PyBytes::new(py, key),
                    record.key.map(|_| 0..key.len()),
                    Value::Large(PyBytes::new(py, value).unbind()),
                )
            }
            value => {
                (data.clone(), record.key.map(place), value.map_or(Value::Null, |value| Value::Place(place(value))))
            }
        };
        found.append(RawRecord {
            topic: topic.clone().unbind(),
            partition: partition.clone().unbind(),
            offset,
            timestamp: ms,
            data: data.unbind(),
            key,
            value,
            headers,
        })?;
        from = offset.saturating_add(1); // like the client: offsets that do not rise are skipped
    }
    Ok(Some((found, end - rest.0.len())))
}

struct Record<'a> {
    delta_ms: i64,
    offset_delta: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<(&'a str, Option<&'a [u8]>)>, // empty: without an allocation
}

/// Bytes not read yet. Every method is `None` if they end too early, or are not what they must be.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn record(&mut self) -> Option<Record<'a>> {
        let length = usize::try_from(self.varint()?).ok()?;
        let mut within = Bytes(self.take(length)?);
        if within.take(1)? != [0] {
            return None; // attributes, of which no bit is used
        }
        let (delta_ms, offset_delta) = (within.varint()?, within.varint()?);
        let (key, value) = (within.data()?, within.data()?);
        let mut headers = Vec::new();
        for _ in 0..usize::try_from(within.varint()?).ok()? {
            headers.push((str::from_utf8(within.data()??).ok()?, within.data()?));
        }
        within.0.is_empty().then_some(Record { delta_ms, offset_delta, key, value, headers })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A length, and as many bytes; inside of `Some` is `None` for a null, which has a negative length.
    fn data(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => Some(Some(self.take(usize::try_from(length).ok()?)?)),
        }
    }

    /// A zigzag varint of at most 64 bits.
    fn varint(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }
}
