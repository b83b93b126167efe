//! The outputs of a batch in columns, which `snapreplay/app/out.py` keeps in a list where the engine is not installed.
//!
//! An output that has a topic, a key and a value, and nothing else, is bytes in one block of memory. Any other is the object
//! that Python has made. Read as a sequence, each is an object.

use std::cell::OnceCell;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice, PyString, PyTuple};
use xxhash_rust::xxh64::Xxh64;

use crate::records::RawRecord;

/// A topic, its name, the encoder of its keys (`None`: they are text) and of its values, whether these are JSON, the most
/// bytes of a record, of which `fixed` are there without key and value, and whether the input's partition may be kept.
type Way = (Py<PyAny>, Py<PyString>, Option<Py<PyAny>>, Py<PyAny>, bool, usize, bool);

/// What the hash of one output takes beside its bytes, as so many bytes.
const PLAIN_COST_BYTES: usize = 256;
const MADE_COST_BYTES: usize = 1024;

/// An argument of a function, if it was given.
pub struct Given<'py>(pub Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Given(Some(object.to_owned())))
    }
}

/// What sending takes beside the topics. A part of outputs has none of it: nothing is sent with that.
struct Sending {
    gate: Py<PyAny>,
    by_python: Py<PyAny>,
    at_ms: i64,
    input: Input,
}

/// What the handler works on: a record, or anything with this key.
pub enum Input {
    Key(Option<Py<PyBytes>>),
    Record(Py<RawRecord>),
}

impl Input {
    fn key<'a>(&'a self, py: Python<'a>) -> Option<&'a [u8]> {
        match self {
            Input::Key(key) => key.as_ref().map(|each| each.as_bytes(py)),
            Input::Record(record) => record.get().key_in(py),
        }
    }
}

thread_local! {
    /// What `get_ident` returns.
    static THREAD: OnceCell<u64> = const { OnceCell::new() };
}

/// Whether a gate is open for this thread, as `Gate.owner` says.
fn is_open(gate: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = gate.py();
    let owner: Option<u64> = gate.getattr(intern!(py, "owner"))?.extract()?;
    THREAD.with(|thread| {
        if thread.get().is_none() {
            let ident = py.import(intern!(py, "_thread"))?.getattr(intern!(py, "get_ident"))?.call0()?.extract()?;
            let _ = thread.set(ident);
        }
        Ok(owner == thread.get().copied())
    })
}

enum Sent {
    Plain { way: usize, start: usize, key_bytes: usize, value_bytes: usize, same_key: bool },
    Made(Py<PyAny>),
}

/// Python has the name of the class that it stands for in the errors of wrong calls.
#[pyclass(module = "snapreplay_engine", name = "Out")]
pub struct Outputs {
    make: Py<PyAny>,
    encode: Py<PyAny>,
    ways: Arc<Vec<Way>>,
    fixed_bytes: usize,
    sent: Vec<(Sent, i64)>, // with the time of its record
    data: Vec<u8>,          // of the plain ones, in order
    is_taken: bool,
    /// Name and hash so far of each topic, in the order of their first outputs.
    topics: Vec<(Py<PyString>, Xxh64)>,
    hashed: usize,
    sending: Option<Sending>,
}

/// An output, as it is packed and hashed.
pub enum Each<'a, 'py> {
    Plain { topic: &'a Bound<'py, PyString>, key: &'a [u8], value: &'a [u8], same_key: bool, at_ms: Option<i64> },
    Made(&'a Bound<'py, PyAny>),
}

impl Outputs {
    fn empty(&self, py: Python<'_>) -> Self {
        Outputs {
            make: self.make.clone_ref(py),
            encode: self.encode.clone_ref(py),
            ways: self.ways.clone(),
            fixed_bytes: self.fixed_bytes,
            sent: Vec::new(),
            data: Vec::new(),
            is_taken: self.is_taken,
            topics: Vec::new(),
            hashed: 0,
            sending: None,
        }
    }

    /// Sets what the handler works on from now on.
    pub fn begin(&mut self, at_ms: i64, input: Input) {
        if let Some(sending) = &mut self.sending {
            (sending.at_ms, sending.input) = (at_ms, input);
        }
    }

    fn sending(&self) -> PyResult<&Sending> {
        self.sending.as_ref().ok_or_else(|| PyTypeError::new_err("nothing is sent with a part of outputs"))
    }

    fn sending_mut(&mut self) -> PyResult<&mut Sending> {
        self.sending.as_mut().ok_or_else(|| PyTypeError::new_err("nothing is sent with a part of outputs"))
    }

    pub fn each<'py>(
        &self,
        py: Python<'py>,
        range: std::ops::Range<usize>,
        mut take: impl FnMut(Each<'_, 'py>) -> PyResult<bool>,
    ) -> PyResult<bool> {
        for (sent, at_ms) in self.sent.get(range).unwrap_or_default() {
            let each = match sent {
                Sent::Made(made) => Each::Made(made.bind(py)),
                Sent::Plain { way, start, key_bytes, value_bytes, same_key } => {
                    let (key, value) = self.data[*start..start + key_bytes + value_bytes].split_at(*key_bytes);
                    let at_ms = (self.is_taken && *at_ms >= 0).then_some(*at_ms);
                    Each::Plain { topic: self.ways[*way].1.bind(py), key, value, same_key: *same_key, at_ms }
                }
            };
            if !take(each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn made<'py>(&self, py: Python<'py>, range: std::ops::Range<usize>) -> PyResult<Bound<'py, PyList>> {
        let (found, make) = (PyList::empty(py), self.make.bind(py));
        self.each(py, range, |each| {
            match each {
                Each::Made(made) => found.append(made)?,
                Each::Plain { topic, key, value, same_key, at_ms } => {
                    let (key, value) = (PyBytes::new(py, key), PyBytes::new(py, value));
                    found.append(make.call1((topic, key, value, py.None(), same_key, at_ms, PyTuple::empty(py)))?)?
                }
            }
            Ok(true)
        })?;
        Ok(found)
    }

    fn topic_hash<'a>(topics: &'a mut Vec<(Py<PyString>, Xxh64)>, topic: &Bound<'_, PyString>) -> PyResult<&'a mut Xxh64> {
        let mut known = topics.iter().position(|(name, _)| name.is(topic));
        if known.is_none() {
            let text = topic.to_str()?;
            known = topics.iter().position(|(name, _)| name.bind(topic.py()).to_str().is_ok_and(|each| each == text));
        }
        let place = known.unwrap_or(topics.len());
        if place == topics.len() {
            topics.push((topic.clone().unbind(), Xxh64::new(0)));
        }
        Ok(&mut topics[place].1)
    }

    /// Adds an output. `false`, or an error: Python must send it.
    fn add(
        slf: &Bound<'_, Self>,
        topic: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = slf.py();
        let (ways, fixed_bytes) = {
            let this = slf.try_borrow()?;
            if !is_open(this.sending()?.gate.bind(py))? {
                return Ok(false);
            }
            (this.ways.clone(), this.fixed_bytes)
        };
        let Some(way) = ways.iter().position(|each| each.0.is(topic)) else { return Ok(false) };
        let (_, _, encode_key, encode_value, is_json, limit_bytes, may_stay) = &ways[way];
        if key.is_none() || value.is_none() {
            return Ok(false);
        }
        let encoded;
        let key = match encode_key {
            None => {
                let text = key.cast_exact::<PyString>()?.to_str()?.as_bytes();
                if text.contains(&0) {
                    return Ok(false);
                }
                text
            }
            Some(encode) => {
                encoded = encode.bind(py).call1((key,))?;
                encoded.cast_exact::<PyBytes>()?.as_bytes()
            }
        };
        // A value may call what it likes: nothing is borrowed here.
        let value = encode_value.bind(py).call1((value,))?;
        let value = value.cast_exact::<PyBytes>()?.as_bytes();
        let may_be_null = *is_json && has_null(value);
        if may_be_null || fixed_bytes + key.len() + value.len() > *limit_bytes {
            return Ok(false);
        }
        let mut this = slf.try_borrow_mut()?;
        let Outputs { sent, data, sending: Some(sending), .. } = &mut *this else { return Ok(false) };
        let same_key = *may_stay && sending.input.key(py) == Some(key);
        let (start, key_bytes, value_bytes) = (data.len(), key.len(), value.len());
        data.extend_from_slice(key);
        data.extend_from_slice(value);
        sent.push((Sent::Plain { way, start, key_bytes, value_bytes, same_key }, sending.at_ms));
        Ok(true)
    }

    /// Keeps only the key of the record that the handler works on: the record keeps the fetch that it is in.
    fn let_record_go(&mut self, py: Python<'_>) {
        if let Some(sending) = &mut self.sending
            && let Input::Record(record) = &sending.input
        {
            sending.input = Input::Key(record.get().key(py).map(Bound::unbind));
        }
    }

    fn forget_hashes(&mut self) {
        (self.topics, self.hashed) = (Vec::new(), 0);
    }
}

#[pymethods]
impl Outputs {
    /// `make`: the class of outputs; `encode`: its MessagePack; `by_python`: sends anything unusual, and gets the error if
    /// there was one; `fixed_bytes`: of a record without key and value. Knows no topics before `learn`.
    #[new]
    fn new(make: Py<PyAny>, encode: Py<PyAny>, gate: Py<PyAny>, by_python: Py<PyAny>, fixed_bytes: usize) -> Self {
        let sending = Some(Sending { gate, by_python, at_ms: -1, input: Input::Key(None) });
        let (sent, data, topics) = (Vec::new(), Vec::new(), Vec::new());
        let ways = Arc::new(Vec::new());
        Outputs { make, encode, ways, fixed_bytes, sent, data, is_taken: false, topics, hashed: 0, sending }
    }

    /// Encodes an output and adds it, as `Out.send` does. That gets the arguments if they are not the usual ones.
    #[pyo3(signature = (topic=Given(None), *rest, key=Given(None), value=Given(None), partition=Given(None),
                        headers=Given(None), timestamp_ms=Given(None)))]
    #[allow(clippy::too_many_arguments)]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        topic: Given<'py>,
        rest: &Bound<'py, PyTuple>,
        key: Given<'py>,
        value: Given<'py>,
        partition: Given<'py>,
        headers: Given<'py>,
        timestamp_ms: Given<'py>,
    ) -> PyResult<()> {
        let py = slf.py();
        let options = [("partition", partition), ("headers", headers), ("timestamp_ms", timestamp_ms)];
        let is_plain = options.iter().all(|(_, each)| each.0.as_ref().is_none_or(|each| each.is_none()));
        let mut error = None;
        if is_plain
            && rest.is_empty()
            && let (Given(Some(topic)), Given(Some(key)), Given(Some(value))) = (&topic, &key, &value)
        {
            match Self::add(slf, topic, key, value) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(met) => error = Some(met.into_value(py)),
            }
        }
        let by_python = slf.try_borrow()?.sending()?.by_python.clone_ref(py);
        let mut given = vec![error.into_pyobject(py)?.into_any()];
        given.extend(topic.0);
        given.extend(rest);
        let named = PyDict::new(py);
        for (name, each) in [("key", key), ("value", value)].into_iter().chain(options) {
            if let Some(each) = each.0 {
                named.set_item(name, each)?;
            }
        }
        by_python.bind(py).call(PyTuple::new(py, given)?, Some(&named))?;
        Ok(())
    }

    #[getter]
    fn at_ms(&self) -> PyResult<i64> {
        Ok(self.sending()?.at_ms)
    }

    #[setter]
    fn set_at_ms(&mut self, at_ms: i64) -> PyResult<()> {
        self.sending_mut()?.at_ms = at_ms;
        Ok(())
    }

    #[getter]
    fn input_key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(match &self.sending()?.input {
            Input::Key(key) => key.as_ref().map(|each| each.bind(py).clone()),
            Input::Record(record) => record.get().key(py),
        })
    }

    #[setter]
    fn set_input_key(&mut self, key: Option<Py<PyBytes>>) -> PyResult<()> {
        self.sending_mut()?.input = Input::Key(key);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.sending {
            Some(sending) => visit.call(&sending.by_python),
            None => Ok(()),
        }
    }

    /// Adds an object, with the time of its record.
    fn append(&mut self, made: Py<PyAny>, at_ms: i64) {
        self.sent.push((Sent::Made(made), at_ms));
    }

    /// Use other limits from now on. The topics are the same.
    fn learn(&mut self, ways: Vec<Way>) {
        self.ways = Arc::new(ways);
    }

    fn __len__(&self) -> usize {
        self.sent.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.made(py, 0..self.sent.len())?.try_iter()?.into_any())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (Ok(rest), others) = (other.try_iter(), PyList::empty(py)) else { return Ok(false) };
        for each in rest {
            others.append(each?)?;
        }
        self.made(py, 0..self.sent.len())?.eq(others)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let length = self.sent.len();
        if let Ok(slice) = index.cast::<PySlice>() {
            let found = slice.indices(isize::try_from(length)?)?;
            let (start, stop) = (usize::try_from(found.start)?, usize::try_from(found.stop)?);
            let mut part = self.empty(py);
            if found.step != 1 {
                return Err(PyIndexError::new_err("a part of outputs has no gaps"));
            }
            for (sent, at_ms) in self.sent.get(start..stop.max(start)).unwrap_or_default() {
                let copied = match sent {
                    Sent::Made(made) => Sent::Made(made.clone_ref(py)),
                    Sent::Plain { way, start, key_bytes, value_bytes, same_key } => {
                        let at = part.data.len();
                        part.data.extend_from_slice(&self.data[*start..start + key_bytes + value_bytes]);
                        let (key_bytes, value_bytes) = (*key_bytes, *value_bytes);
                        Sent::Plain { way: *way, start: at, key_bytes, value_bytes, same_key: *same_key }
                    }
                };
                part.sent.push((copied, *at_ms));
            }
            return Ok(Bound::new(py, part)?.into_any());
        }
        let given: isize = index.extract()?;
        let place = if given < 0 { given + isize::try_from(length)? } else { given };
        match usize::try_from(place) {
            Ok(place) if place < length => self.made(py, place..place + 1)?.get_item(0),
            _ => Err(PyIndexError::new_err("there is no such output")),
        }
    }

    /// Puts an object in the place of an output.
    fn __setitem__(&mut self, place: usize, made: Py<PyAny>) -> PyResult<()> {
        let known = self.sent.get_mut(place).ok_or_else(|| PyIndexError::new_err("there is no such output"))?;
        known.0 = Sent::Made(made);
        self.forget_hashes();
        Ok(())
    }

    /// Drops all but the first `count`.
    fn cut(&mut self, py: Python<'_>, count: usize) {
        self.let_record_go(py);
        self.sent.truncate(count);
        let end = self.sent.iter().rev().find_map(|(sent, _)| match sent {
            Sent::Plain { start, key_bytes, value_bytes, .. } => Some(start + key_bytes + value_bytes),
            Sent::Made(_) => None,
        });
        self.data.truncate(end.unwrap_or(0));
        self.forget_hashes();
    }

    /// Hashes the next ones, at most about so many bytes. `True` when all are hashed. After an error none is.
    fn hash(&mut self, py: Python<'_>, bytes_max: usize) -> PyResult<bool> {
        let (mut packed, mut size) = (Vec::new(), 0);
        let (mut hashed, mut topics) = (std::mem::take(&mut self.hashed), std::mem::take(&mut self.topics));
        while hashed < self.sent.len() && size < bytes_max {
            self.each(py, hashed..hashed + 1, |each| {
                packed.clear();
                match each {
                    Each::Plain { topic, key, value, same_key, .. } => {
                        packed.push(0x97); // an array of seven
                        put_text(&mut packed, topic.to_str()?.as_bytes());
                        put_bytes(&mut packed, key);
                        put_bytes(&mut packed, value);
                        // No partition, and no time and no headers of its own.
                        packed.extend([0xc0, 0xc2 | u8::from(same_key), 0xc0, 0x90]);
                        Outputs::topic_hash(&mut topics, topic)?.update(&packed);
                        size += PLAIN_COST_BYTES + packed.len();
                    }
                    Each::Made(made) => {
                        let topic = made.getattr(intern!(py, "topic"))?.cast_into::<PyString>()?;
                        let packed = self.encode.bind(py).call1((made,))?.cast_into::<PyBytes>()?;
                        Outputs::topic_hash(&mut topics, &topic)?.update(packed.as_bytes());
                        size += MADE_COST_BYTES + packed.as_bytes().len();
                    }
                }
                Ok(true)
            })?;
            hashed += 1;
        }
        (self.hashed, self.topics) = (hashed, topics);
        Ok(hashed == self.sent.len())
    }

    /// The hash of each topic.
    fn hashes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, hash) in &self.topics {
            found.set_item(name, hash.digest())?;
        }
        Ok(found)
    }

    /// The number of outputs of each topic, in the order of their first outputs.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (found, mut plain) = (PyDict::new(py), vec![0usize; self.ways.len()]);
        let before = |name: &Bound<'py, PyAny>| found.get_item(name)?.map_or(Ok(0), |each| each.extract::<usize>());
        for (sent, _) in &self.sent {
            match sent {
                Sent::Plain { way, .. } => {
                    if plain[*way] == 0 {
                        let name = self.ways[*way].1.bind(py); // its place in the order
                        found.set_item(name, before(name)?)?;
                    }
                    plain[*way] += 1;
                }
                Sent::Made(made) => {
                    let topic = made.bind(py).getattr(intern!(py, "topic"))?;
                    found.set_item(&topic, before(&topic)? + 1)?;
                }
            }
        }
        for (count, (_, name, ..)) in plain.into_iter().zip(self.ways.iter()).filter(|each| each.0 > 0) {
            let name = name.bind(py);
            found.set_item(name, before(name)? + count)?;
        }
        Ok(found)
    }

    /// Returns all outputs, each that had no time with that of its record. None is left.
    fn take(&mut self, py: Python<'_>) -> PyResult<Self> {
        for (sent, at_ms) in &self.sent {
            if let Sent::Made(made) = sent
                && *at_ms >= 0
                && made.getattr(py, intern!(py, "timestamp_ms"))?.is_none(py)
            {
                made.setattr(py, intern!(py, "timestamp_ms"), *at_ms)?;
            }
        }
        self.let_record_go(py);
        let mut taken = self.empty(py);
        (taken.sent, taken.data, taken.is_taken) =
            (std::mem::take(&mut self.sent), std::mem::take(&mut self.data), true);
        self.forget_hashes();
        Ok(taken)
    }
}

/// Whether it contains "null". Looks at every fourth byte: each occurrence covers exactly one of them, as n, u or l.
fn has_null(data: &[u8]) -> bool {
    let is_near = |at: usize| data[at - 3..data.len().min(at + 4)].windows(4).any(|each| each == b"null");
    (3..data.len()).step_by(4).any(|at| matches!(data[at], b'n' | b'u' | b'l') && is_near(at))
}

/// MessagePack of a text in UTF-8.
pub fn put_text(packed: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        length @ 0..32 => packed.push(0xa0 | length as u8),
        length => put_length(packed, 0xd9, length),
    }
    packed.extend_from_slice(text);
}

/// MessagePack of bytes.
pub fn put_bytes(packed: &mut Vec<u8>, data: &[u8]) {
    put_length(packed, 0xc4, data.len());
    packed.extend_from_slice(data);
}

/// A length in one, two or four bytes, behind `code`, `code + 1` or `code + 2`.
fn put_length(packed: &mut Vec<u8>, code: u8, length: usize) {
    match length {
        0..0x100 => packed.extend([code, length as u8]),
        0x100..0x1_0000 => {
            packed.push(code + 1);
            packed.extend((length as u16).to_be_bytes());
        }
        _ => {
            packed.push(code + 2);
            packed.extend((length as u32).to_be_bytes());
        }
    }
}
