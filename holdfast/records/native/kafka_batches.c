/* State batches in Kafka's form, as share-state calls and Kafka's own values have them. */

#include "native.h"

uint8_t *put_kafka_batches(uint8_t *at, const Batch *batches, Py_ssize_t size)
{
    for (const Batch *batch = batches; batch < batches + size; batch++) {
        if (batch->state != (int8_t)batch->state || batch->count != (int16_t)batch->count)
            return NULL;
        at = put_big_endian(put_big_endian(at, batch->first, 8), batch->last, 8);
        at = put_big_endian(put_big_endian(put_big_endian(at, batch->state, 1), batch->count, 2), 0, 1);
    }
    return at;
}

PyObject *encode_batches(PyObject *module, PyObject *held)
{
    Py_ssize_t size = count_batches(held);
    if (size < 0)
        Py_RETURN_NONE;
    PyObject *packed = pack_numbers(held);
    if (!packed || packed == Py_None)
        return packed;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size * KAFKA_BATCH_SIZE);
    if (made && !put_kafka_batches((uint8_t *)PyBytes_AS_STRING(made), ((Packed *)packed)->batches, size))
        Py_SETREF(made, Py_NewRef(Py_None));
    Py_DECREF(packed);
    return made;
}

PyObject *read_kafka_batches(const uint8_t *at, Py_ssize_t size)
{
    Packed *packed = size ? new_packed(size) : (Packed *)Py_NewRef(nothing);
    uint8_t tags = 0;
    for (Py_ssize_t index = 0; packed && index < size; index++, at += KAFKA_BATCH_SIZE) {
        packed->batches[index] = (Batch){take_int64(at), take_int64(at + 8), (int8_t)at[16], take_int16(at + 17)};
        tags |= at[19];
    }
    if (tags)
        Py_CLEAR(packed);
    return (PyObject *)packed;
}

PyObject *decode_batches(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    Py_buffer data;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "decode_batches takes bytes, where the batches begin, and how many there are");
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]), size = begin == -1 && PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *made = NULL;
    if (begin < 0 || begin > data.len || size < 0 || size > (data.len - begin) / KAFKA_BATCH_SIZE) {
        PyErr_Format(PyExc_ValueError, "the batches lie outside of the bytes");
        goto done;
    }
    made = read_kafka_batches((const uint8_t *)data.buf + begin, size);
    if (made ? !is_settled(((Packed *)made)->batches, size) : !PyErr_Occurred())
        Py_XSETREF(made, Py_NewRef(Py_None));
done:
    PyBuffer_Release(&data);
    return made;
}
