//! The loop over a run of records, as in `Fold._apply_run`, and the look-up of a key, as in `MapStore.touch`.

use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple, PyType};

use crate::places::{Place, Places};
use crate::records::RawRecord;
use crate::sent::{Given, Input, Outputs, put_bytes, put_text};
use crate::shard::{Shard, hash_of, shard_of};

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
    // One without columns was made where the engine was not in use, or is of a subclass.
    let Some(columns) = out.getattr_opt(intern!(py, "columns"))? else { return Ok((0, None)) };
    let columns = columns.cast::<Outputs>()?;
    let mut applying = Applying { position, stream_time_ms, clock, columns, decode_key, decode_value, takes_null };
    let (app_id, topic, partition) = &place;
    for (index, record) in run.iter().enumerate() {
        let Ok(read) = Read::from(record) else { return Ok((index, None)) };
        if is_timed && index > 0 && applying.is_due(read.at_ms)? {
            return Ok((index, None));
        }
        let (offset, headers, has_headers) = (read.offset, read.headers.clone(), !read.headers.is_empty()?);
        let answer = applying.decoded(read).and_then(|decoded| {
            let Some((time, key, value)) = decoded else { return Ok(None) };
            let made = make.call1((app_id, topic, partition, offset, time, key, value, headers))?;
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
    columns: &'a Bound<'py, Outputs>,
    decode_key: Option<Bound<'py, PyAny>>,
    decode_value: &'a Bound<'py, PyAny>,
    takes_null: bool,
}

/// A record that was read. `own`: the engine has read it, so its key is there.
struct Read<'py> {
    own: Option<Bound<'py, RawRecord>>,
    offset: i64,
    at_ms: i64,
    key: Option<Bound<'py, PyBytes>>,
    value: Bound<'py, PyAny>,
    headers: Bound<'py, PyAny>,
}

impl<'py> Read<'py> {
    /// An error: Python must do it.
    fn from(record: Bound<'py, PyAny>) -> PyResult<Self> {
        let py = record.py();
        match record.cast_into_exact::<RawRecord>() {
            Ok(own) => {
                let raw = own.get();
                let value = raw.value(py).map_or_else(|| py.None().into_bound(py), Bound::into_any);
                let (offset, at_ms, headers) = (raw.offset, raw.timestamp, raw.headers(py).into_any());
                Ok(Read { own: Some(own), offset, at_ms, key: None, value, headers })
            }
            Err(other) => {
                let record = other.into_inner();
                Ok(Read {
                    own: None,
                    offset: record.getattr(intern!(py, "offset"))?.extract()?,
                    at_ms: record.getattr(intern!(py, "timestamp"))?.extract()?,
                    key: record.getattr(intern!(py, "key"))?.extract()?,
                    value: record.getattr(intern!(py, "value"))?,
                    headers: record.getattr(intern!(py, "headers"))?,
                })
            }
        }
    }

    fn key_in<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        match &self.own {
            Some(own) => own.get().key_in(py),
            None => self.key.as_ref().map(|each| each.as_bytes()),
        }
    }

    fn key(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.own.as_ref().map_or_else(|| self.key.clone(), |own| own.get().key(py))
    }
}

/// Time, key and value.
type Decoded<'py> = (Bound<'py, PyInt>, Bound<'py, PyAny>, Bound<'py, PyAny>);

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
        let mut at_ms = read.at_ms;
        if read.offset < self.position {
            return Ok(None);
        }
        let text = match (&self.decode_key, read.key_in(py)) {
            (Some(_), _) => None,
            (None, Some(key)) => match str::from_utf8(key) {
                Ok(text) if !text.contains('\0') => Some(PyString::new(py, text).into_any()),
                _ => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let moves_time = at_ms > self.stream_time_ms;
        if moves_time {
            self.stream_time_ms = at_ms;
        } else if at_ms < 0 {
            at_ms = self.stream_time_ms;
        }
        let time = at_ms.into_pyobject(py)?;
        if moves_time {
            self.clock.setattr(intern!(py, "stream_time_ms"), &time)?;
        }
        self.position = read.offset.saturating_add(1);
        let key = match &self.decode_key {
            Some(_) => read.key(py),
            None => None,
        };
        let input = match &read.own {
            Some(own) => Input::Record(own.clone().unbind()),
            None => Input::Key(read.key.as_ref().map(|each| each.clone().unbind())),
        };
        self.columns.try_borrow_mut()?.begin(at_ms, input);
        let data = read.value;
        let value = if data.is_none() && self.takes_null { data } else { self.decode_value.call1((data,))? };
        let key = match (text, &self.decode_key) {
            (None, Some(decode)) => decode.call1((key,))?,
            (text, _) => text.unwrap_or_else(|| py.None().into_bound(py)),
        };
        Ok(Some((time, key, value)))
    }
}

/// Looks up keys of a map.
#[pyclass(module = "snapreplay_engine", frozen)]
pub struct LookUp {
    live: Py<PyDict>,
    places: Py<PyAny>,
    targets: Py<PyList>,
    lookups: Py<PyList>,
    are_texts: bool,
    unpack: Py<PyAny>,
    by_python: Py<PyAny>,
    misfit: Py<PyType>,
    staged: Mutex<Option<Py<PyDict>>>,
}

#[pymethods]
impl LookUp {
    /// `places`: `Places`, or a list. `lookups`: of the targets that are not shards. `by_python`: does the same, for
    /// anything unusual. `misfit`: the class of the errors of `unpack`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        live: Py<PyDict>,
        places: Py<PyAny>,
        targets: Py<PyList>,
        lookups: Py<PyList>,
        are_texts: bool,
        unpack: Py<PyAny>,
        by_python: Py<PyAny>,
        misfit: Py<PyType>,
    ) -> Self {
        let staged = Mutex::new(None);
        LookUp { live, places, targets, lookups, are_texts, unpack, by_python, misfit, staged }
    }

    /// Takes what is staged, by encoded key. `None`: nothing is.
    fn staged(&self, entries: Option<Py<PyDict>>) {
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    /// Returns the value of a key that is not in `live`, and adds it there.
    #[pyo3(signature = (key, value=Given(None)))]
    fn touch<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>, value: Given<'py>) -> PyResult<Bound<'py, PyAny>> {
        let by_python = self.by_python.bind(py);
        if let Some(value) = value.0 {
            return by_python.call1((key, value));
        }
        let mut encoded = Vec::with_capacity(64);
        let Some(below) = self.below(py, key, &mut encoded)? else { return by_python.call1((key,)) };
        let value = match self.unpack.bind(py).call1((&below.value,)) {
            Ok(value) => value,
            Err(error) if error.is_instance(py, self.misfit.bind(py)) => return by_python.call1((key,)),
            Err(error) => return Err(error),
        };
        self.live.bind(py).set_item(key, &value)?;
        let (old, index, hash) = (below.value.as_bytes(), below.index, below.hash);
        let places = self.places.bind(py);
        match places.cast::<Places>() {
            Ok(places) => places.try_borrow_mut()?.add(Place { key: &encoded, old: Some(old), index, hash }),
            Err(_) => places.cast::<PyList>()?.append((PyBytes::new(py, &encoded), &below.value, index))?,
        }
        Ok(value)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.live)?;
        visit.call(&self.places)?;
        visit.call(&self.targets)?;
        visit.call(&self.lookups)?;
        visit.call(&self.unpack)?;
        visit.call(&self.by_python)
    }
}

/// The first base of a map: its `[]`, as that of `MapState`, which has the rest.
#[pyclass(module = "snapreplay_engine", frozen, mapping, subclass)]
pub struct Getter {
    reading: OnceLock<Reading>,
}

struct Reading {
    look_up: Py<LookUp>,
    by_python: Py<PyAny>,
    missing: Py<PyType>,
}

#[pymethods]
impl Getter {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Getter { reading: OnceLock::new() }
    }

    /// Takes `by_python`: does the same, for anything unusual. `missing`: the class of what `live` holds for a deleted
    /// key, and of what a look-up returns for one that is not there.
    fn read_with(&self, look_up: Py<LookUp>, by_python: Py<PyAny>, missing: Py<PyType>) {
        let _ = self.reading.set(Reading { look_up, by_python, missing });
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(Reading { look_up, by_python, missing }) = slf.get().reading.get() else {
            return Err(PyTypeError::new_err("it was not made by MapState"));
        };
        let look_up = look_up.get();
        let is_usual = if look_up.are_texts {
            key.is_exact_instance_of::<PyString>()
        } else {
            key.is_exact_instance_of::<PyBytes>()
        };
        if !is_usual {
            return by_python.bind(py).call1((slf, key));
        }
        let value = match look_up.live.bind(py).get_item(key)? {
            Some(value) => value,
            None => look_up.touch(py, key, Given(None))?,
        };
        if value.get_type().is(missing.bind(py)) {
            return slf.call_method1(intern!(py, "_store_default"), (key,));
        }
        Ok(value)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.reading.get() {
            Some(reading) => visit.call(&reading.look_up),
            None => Ok(()),
        }
    }
}

/// The value of a key below `live`, the index of its shard, and the hash of the key in there.
struct Below<'py> {
    value: Bound<'py, PyBytes>,
    index: usize,
    hash: u32,
}

impl LookUp {
    /// Looks for a key, which it encodes. `None`: Python must look. An error is that of a look-up by Python, or a signal's.
    fn below<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        encoded: &mut Vec<u8>,
    ) -> PyResult<Option<Below<'py>>> {
        if self.are_texts {
            let Ok(Ok(text)) = key.cast_exact::<PyString>().map(|text| text.to_str()) else { return Ok(None) };
            put_text(encoded, text.as_bytes());
        } else {
            let Ok(data) = key.cast_exact::<PyBytes>() else { return Ok(None) };
            put_bytes(encoded, data.as_bytes());
        }
        let targets = self.targets.bind(py);
        let (index, hash) = (shard_of(encoded, targets.len()), hash_of(encoded));
        if let Some(staged) = &*self.staged.lock().unwrap_or_else(PoisonError::into_inner)
            && let Some(value) = staged.bind(py).get_item(PyBytes::new(py, encoded))?
        {
            // What is no bytes is `None`: it was deleted.
            return Ok(value.cast_into::<PyBytes>().ok().map(|value| Below { value, index, hash }));
        }
        let target = targets.get_item(index)?;
        let value = match target.cast_exact::<Shard>() {
            Ok(shard) => shard.try_borrow()?.value(hash, encoded).map(|value| PyBytes::new(py, value)),
            Err(_) => self.lookups.bind(py).get_item(index)?.call1((PyBytes::new(py, encoded),))?.extract()?,
        };
        Ok(value.map(|value| Below { value, index, hash }))
    }
}
