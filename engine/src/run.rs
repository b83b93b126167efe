//! The loop over a run of records, as in `Fold._apply_run`, and the look-up of a key, as in `MapStore.touch`.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use crate::records::RawRecord;
use crate::sent::{put_bytes, put_text};
use crate::shard::crc32;

/// Applies records until one needs Python. Returns how many were applied, and the error of the next one if its codec or
/// handler failed.
///
/// `carried`: the handler of a record with headers. `decode_key`: `None` if keys are text. `place`: app id, topic and
/// partition. `refuse` makes the error for what a handler returns.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn apply<'py>(
    run: &Bound<'py, PyList>,
    position: i64,
    clock: &Bound<'py, PyAny>,
    is_timed: bool,
    out: &Bound<'py, PyAny>,
    view: &Bound<'py, PyAny>,
    handler: &Bound<'py, PyAny>,
    carried: &Bound<'py, PyAny>,
    decode_key: Option<Bound<'py, PyAny>>,
    decode_value: &Bound<'py, PyAny>,
    takes_null: bool,
    make: &Bound<'py, PyAny>,
    place: (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>),
    refuse: &Bound<'py, PyAny>,
) -> PyResult<(usize, Option<Bound<'py, PyAny>>)> {
    let py = run.py();
    let stream_time_ms = clock.getattr(intern!(py, "stream_time_ms"))?.extract()?;
    let mut applying = Applying { position, stream_time_ms, clock, out, decode_key, decode_value, takes_null };
    let (app_id, topic, partition) = &place;
    for (index, record) in run.iter().enumerate() {
        let Ok(read) = Read::from(&record) else { return Ok((index, None)) };
        if is_timed && index > 0 && applying.is_due(read.at_ms)? {
            return Ok((index, None));
        }
        let (offset, headers, has_headers) = (read.offset, read.headers.clone(), !read.headers.is_empty()?);
        let answer = applying.decoded(read).and_then(|decoded| {
            let Some((at_ms, key, value)) = decoded else { return Ok(None) };
            let made = make.call1((app_id, topic, partition, offset, at_ms, key, value, headers))?;
            let handler = if has_headers { carried } else { handler };
            handler.call1((made, view, out)).map(Some)
        });
        let error = match answer {
            Ok(Some(answer)) if answer.is_none() => continue,
            Ok(Some(answer)) => refuse.call1((answer,))?,
            Ok(None) => return Ok((index, None)),
            Err(error) => error.into_value(py).into_bound(py).into_any(),
        };
        return Ok((index, Some(error)));
    }
    Ok((run.len(), None))
}

struct Applying<'a, 'py> {
    position: i64,
    stream_time_ms: i64,
    clock: &'a Bound<'py, PyAny>,
    out: &'a Bound<'py, PyAny>,
    decode_key: Option<Bound<'py, PyAny>>,
    decode_value: &'a Bound<'py, PyAny>,
    takes_null: bool,
}

/// A record that was read.
struct Read<'py> {
    offset: i64,
    at_ms: i64,
    key: Bound<'py, PyAny>,
    value: Bound<'py, PyAny>,
    headers: Bound<'py, PyAny>,
}

impl<'py> Read<'py> {
    fn from(record: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = record.py();
        let Ok(raw) = record.cast_exact::<RawRecord>() else {
            return Ok(Read {
                offset: record.getattr(intern!(py, "offset"))?.extract()?,
                at_ms: record.getattr(intern!(py, "timestamp"))?.extract()?,
                key: record.getattr(intern!(py, "key"))?,
                value: record.getattr(intern!(py, "value"))?,
                headers: record.getattr(intern!(py, "headers"))?,
            });
        };
        let raw = raw.get();
        let bytes = |data: Option<Bound<'py, PyBytes>>| data.map_or_else(|| py.None().into_bound(py), Bound::into_any);
        Ok(Read {
            offset: raw.offset,
            at_ms: raw.timestamp,
            key: bytes(raw.key(py)),
            value: bytes(raw.value(py)),
            headers: raw.headers(py).into_any(),
        })
    }
}

/// Time, key and value.
type Decoded<'py> = (i64, Bound<'py, PyAny>, Bound<'py, PyAny>);

impl<'py> Applying<'_, 'py> {
    /// Whether something may be due before a record of this time.
    fn is_due(&self, at_ms: i64) -> PyResult<bool> {
        let py = self.clock.py();
        let quiet_before_ms: i64 = self.clock.getattr(intern!(py, "quiet_before_ms"))?.extract()?;
        Ok(at_ms.max(self.stream_time_ms) >= quiet_before_ms)
    }

    /// Moves to a record, and decodes it. `None`: Python must do it. An error is a codec's.
    fn decoded(&mut self, read: Read<'py>) -> PyResult<Option<Decoded<'py>>> {
        let py = self.clock.py();
        let Read { offset, mut at_ms, key, value: data, .. } = read;
        if offset < self.position {
            return Ok(None);
        }
        let text = match (&self.decode_key, key.cast_exact::<PyBytes>()) {
            (Some(_), _) => None,
            (None, Ok(key)) => match str::from_utf8(key.as_bytes()) {
                Ok(text) if !text.contains('\0') => Some(PyString::new(py, text).into_any()),
                _ => return Ok(None),
            },
            (None, Err(_)) => return Ok(None),
        };
        if at_ms > self.stream_time_ms {
            self.stream_time_ms = at_ms;
            self.clock.setattr(intern!(py, "stream_time_ms"), at_ms)?;
        } else if at_ms < 0 {
            at_ms = self.stream_time_ms;
        }
        self.position = offset.saturating_add(1);
        self.out.setattr(intern!(py, "at_ms"), at_ms)?;
        self.out.setattr(intern!(py, "input_key"), &key)?;
        let value = if data.is_none() && self.takes_null { data } else { self.decode_value.call1((data,))? };
        let key = match (text, &self.decode_key) {
            (None, Some(decode)) => decode.call1((key,))?,
            (text, _) => text.unwrap_or(key),
        };
        Ok(Some((at_ms, key, value)))
    }
}

/// Looks up keys of a map.
#[pyclass(module = "snapreplay_engine", frozen)]
pub struct LookUp {
    store: Py<PyAny>,
    live: Py<PyDict>,
    places: Py<PyList>,
    lookups: Py<PyList>,
    are_texts: bool,
    unpack: Py<PyAny>,
    by_python: Py<PyAny>,
    misfit: Py<PyType>,
}

#[pymethods]
impl LookUp {
    /// `by_python`: does the same, for anything unusual. `misfit`: the class of the errors of `unpack`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        store: Py<PyAny>,
        live: Py<PyDict>,
        places: Py<PyList>,
        lookups: Py<PyList>,
        are_texts: bool,
        unpack: Py<PyAny>,
        by_python: Py<PyAny>,
        misfit: Py<PyType>,
    ) -> Self {
        LookUp { store, live, places, lookups, are_texts, unpack, by_python, misfit }
    }

    /// Returns the value of a key that is not in `live`, and adds it there.
    #[pyo3(signature = (key, *value))]
    fn touch<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let by_python = self.by_python.bind(py);
        if !value.is_empty() {
            return by_python.call1((key, value.get_item(0)?));
        }
        let Ok(Some((encoded, below, index))) = self.below(py, key) else { return by_python.call1((key,)) };
        let value = match self.unpack.bind(py).call1((&below,)) {
            Ok(value) => value,
            Err(error) if error.is_instance(py, self.misfit.bind(py)) => return by_python.call1((key,)),
            Err(error) => return Err(error),
        };
        self.live.bind(py).set_item(key, &value)?;
        self.places.bind(py).append((encoded, below, index))?;
        Ok(value)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.store)?;
        visit.call(&self.live)?;
        visit.call(&self.places)?;
        visit.call(&self.lookups)?;
        visit.call(&self.unpack)?;
        visit.call(&self.by_python)
    }
}

/// An encoded key, its value below `live`, and the index of its shard.
type Place<'py> = (Bound<'py, PyBytes>, Bound<'py, PyAny>, usize);

impl LookUp {
    /// The place of a key. `None`, or an error: Python must look.
    fn below<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Place<'py>>> {
        let mut encoded = Vec::with_capacity(64);
        if self.are_texts {
            put_text(&mut encoded, key.cast_exact::<PyString>()?.to_str()?.as_bytes());
        } else {
            put_bytes(&mut encoded, key.cast_exact::<PyBytes>()?.as_bytes());
        }
        let lookups = self.lookups.bind(py);
        let index = crc32(&encoded) as usize & lookups.len().wrapping_sub(1);
        let encoded = PyBytes::new(py, &encoded);
        let staged = self.store.bind(py).getattr(intern!(py, "_staged"))?.cast_into::<PyDict>()?;
        let below = match staged.get_item(&encoded)? {
            Some(staged) => staged,
            None => lookups.get_item(index)?.call1((&encoded,))?,
        };
        Ok((!below.is_none()).then_some((encoded, below, index)))
    }
}
