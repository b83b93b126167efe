//! Record batches of outputs, as `service/kafka/batching.py` makes them with the client's builder.

use std::collections::HashMap;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::sent::{Each, Outputs};

/// What follows the head of a batch, the number of its records, and the first and the largest of their times.
type Body<'py> = (Bound<'py, PyBytes>, usize, i64, i64);
/// The batches of one partition, in order.
type Run<'py> = (Bound<'py, PyString>, u32, Vec<Body<'py>>);

const HEAD_BYTES: usize = 61;

/// Packs outputs into batches, by partition in the order of their records; `None`: something is unusual, or is to be
/// refused. `shapes`: topic → (its number, partitions, bytes of a full batch, bytes of the largest record).
/// `same_count`: of the partitions of the state's own topic. `plain`: the class of outputs; those of another class have
/// more headers in `carried`.
#[pyfunction]
pub fn pack<'py>(
    outputs: &Bound<'py, PyAny>,
    shapes: &Bound<'py, PyDict>,
    plain: &Bound<'py, PyAny>,
    state_partition: u32,
    same_count: u32,
    now_ms: i64,
) -> Option<Vec<Run<'py>>> {
    let mut lanes = Lanes {
        shapes,
        plain,
        state_partition,
        same_count,
        now_ms,
        latest: None,
        places: HashMap::new(),
        lanes: Vec::new(),
    };
    // The client's builder meets any error again, and raises it.
    if !lanes.add_all(outputs).unwrap_or(false) {
        return None;
    }
    Some(lanes.lanes.into_iter().map(|each| each.into_run(outputs.py())).collect())
}

struct Lanes<'a, 'py> {
    shapes: &'a Bound<'py, PyDict>,
    plain: &'a Bound<'py, PyAny>,
    state_partition: u32,
    same_count: u32,
    now_ms: i64,
    latest: Option<(Bound<'py, PyString>, Shape)>,
    places: HashMap<(usize, u32), usize>, // topic's number and partition → lane
    lanes: Vec<Lane<'py>>,
}

impl<'py> Lanes<'_, 'py> {
    /// Adds outputs; `false`: one is to be refused.
    fn add_all(&mut self, outputs: &Bound<'py, PyAny>) -> PyResult<bool> {
        let Ok(sent) = outputs.cast::<Outputs>() else {
            for output in outputs.cast::<PyList>()? {
                if !self.add(&output)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        };
        let sent = sent.try_borrow()?;
        sent.each(outputs.py(), 0..outputs.len()?, |each| match each {
            Each::Made(made) => self.add(made),
            Each::Plain { topic, key, value, same_key, at_ms } => {
                self.add_record(topic, Some(key), Some(value), None, || Ok(same_key), &Vec::new(), at_ms)
            }
        })
    }

    fn add(&mut self, output: &Bound<'py, PyAny>) -> PyResult<bool> {
        let py = output.py();
        let topic = output.getattr(intern!(py, "topic"))?.cast_into::<PyString>()?;
        let key: Option<Bound<'py, PyBytes>> = output.getattr(intern!(py, "key"))?.extract()?;
        let value: Option<Bound<'py, PyBytes>> = output.getattr(intern!(py, "value"))?.extract()?;
        let given: Option<u32> = output.getattr(intern!(py, "partition"))?.extract()?;
        let at_ms: Option<i64> = output.getattr(intern!(py, "timestamp_ms"))?.extract()?;
        let mut headers: Headers<'py> = Vec::new(); // without an allocation if there are none
        for each in output.getattr(intern!(py, "headers"))?.cast_into::<PyTuple>()? {
            headers.push(each.extract()?);
        }
        if !output.get_type().is(self.plain) {
            for each in output.getattr(intern!(py, "carried"))?.cast_into::<PyTuple>()? {
                headers.push(each.extract()?);
            }
        }
        let (key, value) = (key.as_ref().map(|each| each.as_bytes()), value.as_ref().map(|each| each.as_bytes()));
        let same_key = || output.getattr(intern!(py, "same_key"))?.is_truthy();
        self.add_record(&topic, key, value, given, same_key, &headers, at_ms)
    }

    #[allow(clippy::too_many_arguments)]
    fn add_record(
        &mut self,
        topic: &Bound<'py, PyString>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        given: Option<u32>,
        same_key: impl Fn() -> PyResult<bool>,
        headers: &Headers<'py>,
        at_ms: Option<i64>,
    ) -> PyResult<bool> {
        let shape = match &self.latest {
            Some((known, shape)) if known.is(topic) => *shape,
            _ => {
                let Some(found) = self.shapes.get_item(topic)? else { return Ok(false) };
                let shape: Shape = found.extract()?;
                self.latest = Some((topic.clone(), shape));
                shape
            }
        };
        let (number, count, ..) = shape;
        if count == 0 {
            return Ok(false);
        }
        let partition = match (given, key) {
            (Some(given), _) if given >= count => return Ok(false),
            (Some(given), _) => given,
            (None, Some(key)) if count != self.same_count || !same_key()? => (murmur2(key) & 0x7fff_ffff) % count,
            _ => self.state_partition % count,
        };
        let place = *self.places.entry((number, partition)).or_insert_with(|| {
            self.lanes.push(Lane { topic: topic.clone(), partition, full: Vec::new(), open: Open::default() });
            self.lanes.len() - 1
        });
        self.lanes[place].add(topic.py(), shape, key, value, headers, at_ms.unwrap_or(self.now_ms))
    }
}

type Headers<'py> = Vec<(Bound<'py, PyString>, Option<Bound<'py, PyBytes>>)>;
type Shape = (usize, u32, usize, usize);

struct Lane<'py> {
    topic: Bound<'py, PyString>,
    partition: u32,
    full: Vec<Body<'py>>,
    open: Open,
}

#[derive(Default)]
struct Open {
    body: Vec<u8>,
    count: usize,
    first_ms: i64,
    largest_ms: i64,
}

impl<'py> Lane<'py> {
    /// Adds a record; `false`: its topic does not take one so large.
    fn add(
        &mut self,
        py: Python<'py>,
        (_, _, batch_bytes, record_bytes_max): Shape,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &Headers<'py>,
        at_ms: i64,
    ) -> PyResult<bool> {
        for _ in 0..2 {
            let open = &mut self.open;
            if open.count == 0 {
                (open.first_ms, open.largest_ms) = (at_ms, at_ms);
            }
            let Some(delta_ms) = at_ms.checked_sub(open.first_ms) else { return Ok(false) };
            let (number, before) = (open.count as i64, open.body.len());
            let mut length = 1 + varint_bytes(delta_ms) + varint_bytes(number);
            length += data_bytes(key.map(<[u8]>::len)) + data_bytes(value.map(<[u8]>::len));
            length += varint_bytes(headers.len() as i64);
            for (name, data) in headers {
                length += data_bytes(Some(name.to_str()?.len()));
                length += data_bytes(data.as_ref().map(|each| each.as_bytes().len()));
            }
            let whole = varint_bytes(length as i64) + length;
            if open.count > 0 && HEAD_BYTES + before + whole > batch_bytes {
                self.close(py);
                continue;
            }
            if open.count == 0 && whole > record_bytes_max {
                return Ok(false);
            }
            let body = &mut open.body;
            put_varint(body, length as i64);
            body.push(0); // attributes
            put_varint(body, delta_ms);
            put_varint(body, number);
            put_data(body, key);
            put_data(body, value);
            put_varint(body, headers.len() as i64);
            for (name, data) in headers {
                put_data(body, Some(name.to_str()?.as_bytes()));
                put_data(body, data.as_ref().map(|each| each.as_bytes()));
            }
            debug_assert_eq!(open.body.len() - before, whole);
            open.count += 1;
            open.largest_ms = open.largest_ms.max(at_ms);
            return Ok(true);
        }
        Ok(false)
    }

    fn close(&mut self, py: Python<'py>) {
        let Open { body, count, first_ms, largest_ms } = std::mem::take(&mut self.open);
        self.full.push((PyBytes::new(py, &body), count, first_ms, largest_ms));
    }

    fn into_run(mut self, py: Python<'py>) -> Run<'py> {
        self.close(py);
        (self.topic, self.partition, self.full)
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint_bytes(value: i64) -> usize {
    (64 - (zigzag(value) | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_varint(body: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest > 0x7f {
        body.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    body.push(rest as u8);
}

/// The bytes of a length and so many more; `None`: of a null.
fn data_bytes(length: Option<usize>) -> usize {
    length.map_or(1, |length| varint_bytes(length as i64) + length)
}

fn put_data(body: &mut Vec<u8>, data: Option<&[u8]>) {
    put_varint(body, data.map_or(-1, |data| data.len() as i64));
    body.extend_from_slice(data.unwrap_or_default());
}

/// The hash of Kafka's clients, by which a key chooses its partition.
fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ key.len() as u32;
    let words = key.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mixed = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (mixed ^ (mixed >> 24)).wrapping_mul(M);
    }
    for (number, &byte) in rest.iter().enumerate() {
        hash ^= u32::from(byte) << (8 * number);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}
