/* Snapshots and updates as our own Avro: variable-length numbers, and nothing else behind a prefix. */

#include "native.h"

/* Encode the fields of a value, whose batches lie at one place among its numbers. */
static PyObject *encode_fields(PyObject *value, Py_ssize_t batches_at, PyObject *prefix)
{
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) <= batches_at || !PyBytes_Check(prefix) ||
        count_batches(PyTuple_GET_ITEM(value, batches_at)) < 0)
        return PyErr_Format(PyExc_TypeError, "a value is a tuple of numbers and of batches, packed or as a tuple");
    PyObject *batches = PyTuple_GET_ITEM(value, batches_at);
    const Packed *packed = Py_IS_TYPE(batches, &packed_type) ? (Packed *)batches : NULL;
    Py_ssize_t fields = PyTuple_GET_SIZE(value), count = count_batches(batches), prefix_size = PyBytes_GET_SIZE(prefix);
    /* The count of the batches before them, and the zero behind. */
    Py_ssize_t numbers_max = fields - 1 + count * BATCH_FIELDS + 2;
    uint8_t few[512], *begin = few;
    Py_ssize_t size_max = prefix_size + numbers_max * NUMBER_BYTES_MAX;
    if (size_max > (Py_ssize_t)sizeof few && !(begin = PyMem_Malloc(size_max)))
        return PyErr_NoMemory();
    uint8_t *at = begin + prefix_size;
    PyObject *made = NULL;
    memcpy(begin, PyBytes_AS_STRING(prefix), prefix_size);
    for (Py_ssize_t index = 0; index < fields; index++) {
        int64_t number;
        if (index != batches_at) {
            if (!read_number(PyTuple_GET_ITEM(value, index), &number))
                goto done;
            at = put_number(at, number);
            continue;
        }
        if (count)
            at = put_number(at, count);
        for (Py_ssize_t place = 0; place < count; place++) {
            if (packed) {
                const Batch *batch = &packed->batches[place];
                at = put_number(put_number(put_number(put_number(at, batch->first), batch->last), batch->state), batch->count);
                continue;
            }
            PyObject *batch = PyTuple_GET_ITEM(batches, place);
            if (!is_batch(batch))
                goto done;
            for (Py_ssize_t field = 0; field < BATCH_FIELDS; field++) {
                if (!read_number(PyTuple_GET_ITEM(batch, field), &number))
                    goto done;
                at = put_number(at, number);
            }
        }
        at = put_number(at, 0);
    }
    made = PyBytes_FromStringAndSize((char *)begin, at - begin);
done:
    if (begin != few)
        PyMem_Free(begin);
    return made;
}

PyObject *encode_value(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "encode_value takes a value, where its batches are, and a prefix");
    Py_ssize_t batches_at = PyLong_AsSsize_t(args[1]);
    if (batches_at < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "batches_at is negative");
    return encode_fields(args[0], batches_at, args[2]);
}

/* Decode a value of so many numbers, batches, and so many numbers; None where it is not written as `encode_value` does. */
static PyObject *decode_fields(PyTypeObject *type, const uint8_t *at, const uint8_t *end, Py_ssize_t before, Py_ssize_t behind)
{
    int64_t numbers[16], count;
    for (Py_ssize_t index = 0; index < before; index++)
        if (!at || !(at = take_number(at, end, &numbers[index])))
            Py_RETURN_NONE;
    if (!(at = take_number(at, end, &count)) || count < 0 || count > (end - at) / BATCH_FIELDS)
        Py_RETURN_NONE;
    PyObject *batches = count ? (PyObject *)new_packed((Py_ssize_t)count) : Py_NewRef(nothing);
    if (!batches)
        return NULL;
    Batch *items = ((Packed *)batches)->batches;
    for (Py_ssize_t index = 0; index < count; index++)
        if (!(at = take_batch(at, end, &items[index])))
            goto unusual;
    if (!is_settled(items, (Py_ssize_t)count))
        goto unusual;
    int64_t ended = 0;
    if (count && (!(at = take_number(at, end, &ended)) || ended))
        goto unusual;
    for (Py_ssize_t index = 0; index < behind; index++)
        if (!(at = take_number(at, end, &numbers[before + index])))
            goto unusual;
    if (at != end)
        goto unusual;
    PyObject *made = new_tuple(type, before + 1 + behind);
    if (!made) {
        Py_DECREF(batches);
        return NULL;
    }
    PyTuple_SET_ITEM(made, before, batches);
    for (Py_ssize_t index = 0; index < before + behind; index++) {
        /* What was written when it was created has one number for both. */
        if (index && index < before && numbers[index] == numbers[index - 1])
            PyTuple_SET_ITEM(made, index, Py_NewRef(PyTuple_GET_ITEM(made, index - 1)));
        else if (!set_number(made, index < before ? index : index + 1, numbers[index])) {
            Py_DECREF(made);
            return NULL;
        }
    }
    return made;
unusual:
    Py_DECREF(batches);
    Py_RETURN_NONE;
}

static PyObject *decode_value(PyObject *const *args, Py_ssize_t count, PyTypeObject *type, Py_ssize_t before, Py_ssize_t behind)
{
    if (count != 2 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "takes bytes and where their numbers begin");
    Py_ssize_t from = PyLong_AsSsize_t(args[1]), size = PyBytes_GET_SIZE(args[0]);
    if (from < 0 || from > size)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the numbers begin outside of the bytes");
    const uint8_t *begin = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    return decode_fields(type, begin + from, begin + size, before, behind);
}

PyObject *decode_update(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return decode_value(args, count, update_type, 4, 0);
}

PyObject *decode_snapshot(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return decode_value(args, count, snapshot_type, 7, 2);
}
