/* Bytes of the Kafka protocol that every batch and every request has; `twins.pyi` says what each function takes and gives.

   Each function is the twin of one in Python and answers the same; where a case is unusual it answers None, and the caller goes
   the way in Python, which raises what is to be raised. `tests/pure/kafka/protocol/test_native.py` compares them case by case.

   Source: Apache Kafka's message schemas Produce v8 and RequestHeader v1 and v2, ResponseHeader v0 and v1. */

#include "numbers_and_tuples.h"
#include <string.h>

/* Of a string without its characters. */
static PyObject *no_message;

static inline uint8_t *put_bytes(uint8_t *at, const void *bytes, Py_ssize_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

/* Read a number that has room in a field; false, without an exception, where it has none, which is left to Python. */
static int read_int16(PyObject *object, int64_t *number)
{
    return read_within(object, INT16_MIN, INT16_MAX, number);
}

static int read_int32(PyObject *object, int64_t *number)
{
    return read_within(object, INT32_MIN, INT32_MAX, number);
}

/* Tell whether something is a type whose instances are laid out as tuples are; an exception is set where it is none. */
static int need_tuple_type(PyObject *object)
{
    int is_one = is_tuple_type(object);
    if (!is_one)
        PyErr_SetString(PyExc_TypeError, "the type of what is made is no tuple");
    return is_one;
}

/* Make an instance of a subclass of tuple that takes over its fields, of which none may be part of a cycle: the collector does not
   look at it. NULL where a field is, or where there is no memory. */
static PyObject *new_tuple_of(PyObject *type, Py_ssize_t size, PyObject *const *fields)
{
    int is_whole = 1;
    for (Py_ssize_t index = 0; index < size; index++)
        is_whole &= fields[index] != NULL;
    PyObject *made = is_whole ? new_tuple((PyTypeObject *)type, size) : NULL;
    for (Py_ssize_t index = 0; index < size; index++)
        if (made)
            PyTuple_SET_ITEM(made, index, fields[index]);
        else
            Py_XDECREF(fields[index]);
    return made;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

/* API key, version, correlation id, length of the client id. */
#define HEADER_SIZE (2 + 2 + 4 + 2)

static PyObject *read_request_header(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    if (arguments != 2)
        return PyErr_Format(PyExc_TypeError, "read_request_header takes a type and bytes");
    if (!need_tuple_type(args[0]))
        return NULL;
    if (!PyBytes_Check(args[1]))
        Py_RETURN_NONE;
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(args[1]);
    Py_ssize_t size = PyBytes_GET_SIZE(args[1]), length = size < HEADER_SIZE ? -1 : take_int16(at + 8);
    if (length < 0 || length > size - HEADER_SIZE)
        Py_RETURN_NONE;
    PyObject *fields[] = {
        PyLong_FromLong(take_int16(at)),
        PyLong_FromLong(take_int16(at + 2)),
        PyLong_FromLong(take_int32(at + 4)),
        PyBytes_FromStringAndSize((const char *)at + HEADER_SIZE, length),
        PyLong_FromSsize_t(HEADER_SIZE + length),
    };
    return new_tuple_of(args[0], 5, fields);
}

static PyObject *encode_request(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t api_key, version, correlation_id;
    if (arguments != 6)
        return PyErr_Format(PyExc_TypeError, "encode_request takes three numbers, a name, a body, and whether there are tags");
    if (!PyBytes_Check(args[3]) || !PyBytes_Check(args[4]) || !PyBool_Check(args[5]))
        Py_RETURN_NONE;
    Py_ssize_t name = PyBytes_GET_SIZE(args[3]), body = PyBytes_GET_SIZE(args[4]), tags = args[5] == Py_True;
    if (!read_int16(args[0], &api_key) || !read_int16(args[1], &version) ||
        !read_int32(args[2], &correlation_id) || name > INT16_MAX || body > INT32_MAX - HEADER_SIZE - name - tags)
        Py_RETURN_NONE;
    Py_ssize_t size = HEADER_SIZE + name + tags + body;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, 4 + size);
    if (!frame)
        return NULL;
    uint8_t *at = put_big_endian(put_big_endian((uint8_t *)PyBytes_AS_STRING(frame), size, 4), api_key, 2);
    at = put_big_endian(put_big_endian(put_big_endian(at, version, 2), correlation_id, 4), name, 2);
    at = put_big_endian(put_bytes(at, PyBytes_AS_STRING(args[3]), name), 0, (int)tags);
    put_bytes(at, PyBytes_AS_STRING(args[4]), body);
    return frame;
}

/* ---- a response -------------------------------------------------------------------------------------------------- */

static PyObject *encode_response(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t correlation_id;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "encode_response takes a number, a body, and whether there are tags");
    if (!PyBytes_Check(args[1]) || !PyBool_Check(args[2]))
        Py_RETURN_NONE;
    Py_ssize_t body = PyBytes_GET_SIZE(args[1]), tags = args[2] == Py_True, size = 4 + tags + body;
    if (!read_int32(args[0], &correlation_id) || size > INT32_MAX)
        Py_RETURN_NONE;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, 4 + size);
    if (!frame)
        return NULL;
    uint8_t *at = put_big_endian(put_big_endian((uint8_t *)PyBytes_AS_STRING(frame), size, 4), correlation_id, 4);
    put_bytes(put_big_endian(at, 0, (int)tags), PyBytes_AS_STRING(args[1]), body);
    return frame;
}

/* ---- Produce ----------------------------------------------------------------------------------------------------- */

/* No transactional id, acknowledged by all in sync, time-out, one topic, length of its name; the number of batches follows. */
#define PRODUCE_SIZE (2 + 2 + 4 + 4 + 2)

static PyObject *encode_produce(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t timeout_ms, partition = 0;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "encode_produce takes a topic, a number and batches");
    PyObject *topic = args[0], *batches = args[2];
    if (!PyUnicode_Check(topic) || !PyUnicode_IS_COMPACT_ASCII(topic) || PyUnicode_GET_LENGTH(topic) > INT16_MAX ||
        !read_int32(args[1], &timeout_ms) || !PyList_CheckExact(batches) || PyList_GET_SIZE(batches) > INT32_MAX)
        Py_RETURN_NONE;
    Py_ssize_t name = PyUnicode_GET_LENGTH(topic), count = PyList_GET_SIZE(batches), size = PRODUCE_SIZE + name + 4;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *each = PyList_GET_ITEM(batches, index);
        if (!PyTuple_CheckExact(each) || PyTuple_GET_SIZE(each) != 2 || !read_int32(PyTuple_GET_ITEM(each, 0), &partition) ||
            !PyBytes_Check(PyTuple_GET_ITEM(each, 1)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(each, 1)) > INT32_MAX)
            Py_RETURN_NONE;
        size += 4 + 4 + PyBytes_GET_SIZE(PyTuple_GET_ITEM(each, 1));
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, size);
    if (!body)
        return NULL;
    uint8_t *at = put_big_endian(put_big_endian(put_big_endian((uint8_t *)PyBytes_AS_STRING(body), -1, 2 + 2), timeout_ms, 4), 1, 4);
    at = put_big_endian(put_bytes(put_big_endian(at, name, 2), PyUnicode_DATA(topic), name), count, 4);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *each = PyList_GET_ITEM(batches, index), *batch = PyTuple_GET_ITEM(each, 1);
        read_int32(PyTuple_GET_ITEM(each, 0), &partition);
        at = put_big_endian(put_big_endian(at, partition, 4), PyBytes_GET_SIZE(batch), 4);
        at = put_bytes(at, PyBytes_AS_STRING(batch), PyBytes_GET_SIZE(batch));
    }
    return body;
}

/* Partition, error code, base offset, time of the append, log start, number of errors, length of the message. */
#define PRODUCED_SIZE (4 + 2 + 8 + 8 + 8 + 4 + 2)

static PyObject *decode_produced(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    if (arguments != 2)
        return PyErr_Format(PyExc_TypeError, "decode_produced takes a type and bytes");
    if (!need_tuple_type(args[0]))
        return NULL;
    if (!PyBytes_Check(args[1]))
        Py_RETURN_NONE;
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(args[1]);
    Py_ssize_t left = PyBytes_GET_SIZE(args[1]);
    /* The number of topics, and the length of the name of the only one; behind it the number of batches. */
    if (left < 4 + 2 || take_int32(at) != 1)
        Py_RETURN_NONE;
    Py_ssize_t name = take_int16(at + 4);
    at += 4 + 2;
    left -= 4 + 2;
    if (name < 0 || left < name + 4)
        Py_RETURN_NONE;
    for (const uint8_t *end = at + name; at < end; at++)
        if (*at > 0x7F) /* whether it is UTF-8 is for Python to say */
            Py_RETURN_NONE;
    Py_ssize_t count = take_int32(at);
    at += 4;
    left -= name + 4;
    /* Behind all of them there is for how long the broker reads nothing. */
    if (count < 0 || count > left / PRODUCED_SIZE || left - count * PRODUCED_SIZE < 4)
        Py_RETURN_NONE;
    PyObject *found = PyList_New(count);
    for (Py_ssize_t index = 0; found && index < count; index++, at += PRODUCED_SIZE) {
        if (take_int32(at + 30) > 0 || take_int16(at + 34) >= 0) {
            Py_DECREF(found);
            Py_RETURN_NONE;
        }
        PyObject *fields[] = {
            PyLong_FromLong(take_int32(at)),
            PyLong_FromLong(take_int16(at + 4)),
            PyLong_FromLongLong(take_int64(at + 6)),
            Py_NewRef(no_message),
        };
        PyObject *each = new_tuple_of(args[0], 4, fields);
        if (!each)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, index, each);
    }
    PyObject *throttle_ms = found ? PyLong_FromLong(take_int32(at)) : NULL, *answer = throttle_ms ? PyTuple_New(2) : NULL;
    if (!answer) {
        Py_XDECREF(found);
        Py_XDECREF(throttle_ms);
        return NULL;
    }
    PyTuple_SET_ITEM(answer, 0, found);
    PyTuple_SET_ITEM(answer, 1, throttle_ms);
    return answer;
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

#define MANY(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    MANY(read_request_header), MANY(encode_request), MANY(encode_response), MANY(encode_produce), MANY(decode_produced),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twins", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_twins(void)
{
    no_message = PyUnicode_New(0, 0);
    return no_message ? PyModule_Create(&definition) : NULL;
}
