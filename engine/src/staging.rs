//! What a batch touched is encoded and checked, as in `snapreplay/state/staging.py`, `round_trip.py` and `read_back.py`.

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyType};

/// Those of `block` that are not `deleted`, what `pack` makes of them, and the bytes of all keys and of these.
type Encoded<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, usize);

/// Adds to `encoded` each key with its packed value, `None` if that is `deleted`.
#[pyfunction]
pub fn encode<'py>(
    keys: &Bound<'py, PyList>,
    block: &Bound<'py, PyList>,
    pack: &Bound<'py, PyAny>,
    deleted: &Bound<'py, PyAny>,
    encoded: &Bound<'py, PyDict>,
) -> PyResult<Encoded<'py>> {
    let py = keys.py();
    if keys.len() != block.len() {
        return Err(PyValueError::new_err("as many values as keys are needed"));
    }
    let (values, packed, mut size) = (PyList::empty(py), PyList::empty(py), 0);
    for (key, value) in keys.iter().zip(block) {
        size += key.cast::<PyBytes>()?.as_bytes().len();
        if value.is(deleted) {
            encoded.set_item(key, py.None())?;
            continue;
        }
        let bytes = pack.call1((&value,))?.cast_into::<PyBytes>()?;
        size += bytes.as_bytes().len();
        encoded.set_item(key, &bytes)?;
        packed.append(bytes)?;
        values.append(value)?;
    }
    Ok((values, packed, size))
}

/// Whether all are of this class, and the attributes of each of these types. `None`: Python must say.
#[pyfunction]
pub fn are_flat(
    values: &Bound<'_, PyList>,
    class: &Bound<'_, PyType>,
    fields: Vec<(Bound<'_, PyString>, Vec<Bound<'_, PyType>>)>,
) -> PyResult<Option<bool>> {
    for value in values {
        if !value.get_type().is(class) {
            return Ok(Some(false));
        }
        for (name, allowed) in &fields {
            let field = match value.getattr(name) {
                Ok(field) => field.get_type(),
                Err(error) if error.is_instance_of::<PyException>(values.py()) => return Ok(None),
                Err(error) => return Err(error),
            };
            if !allowed.iter().any(|each| field.is(each)) {
                return Ok(Some(false));
            }
        }
    }
    Ok(Some(true))
}

/// The ids of mutable objects.
#[pyclass(module = "snapreplay_engine")]
#[derive(Default)]
pub struct MutableObjects {
    ids: Vec<usize>,
}

#[pymethods]
impl MutableObjects {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, objects: &Bound<'_, PyList>) {
        self.ids.extend(objects.iter().map(|each| each.as_ptr() as usize));
    }

    /// Whether one of them was added twice.
    #[getter]
    fn met_again(&mut self) -> bool {
        self.ids.sort_unstable();
        self.ids.windows(2).any(|each| each[0] == each[1])
    }
}
