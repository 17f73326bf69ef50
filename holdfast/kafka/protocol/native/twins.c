/* Bytes of the Kafka protocol that every batch and every request has; `twins.pyi` says what each function takes and gives.

   Each function is the twin of one in Python and answers the same; where a case is unusual it answers None, and the caller goes
   the way in Python, which raises what is to be raised. `tests/pure/kafka/protocol/test_native.py` compares them case by case.

   Source: Apache Kafka's message schemas Produce v8 and RequestHeader v1 and v2. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Of a string without its characters. */
static PyObject *no_message;

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static inline uint8_t *put(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes--)
        *at++ = (uint8_t)(number >> 8 * bytes);
    return at;
}

static inline uint8_t *put_bytes(uint8_t *at, const void *bytes, Py_ssize_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

static inline uint64_t take(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    while (bytes--)
        number = number << 8 | *at++;
    return number;
}

static inline int16_t take_int16(const uint8_t *at)
{
    return (int16_t)take(at, 2);
}

static inline int32_t take_int32(const uint8_t *at)
{
    return (int32_t)take(at, 4);
}

/* Read a number of at most so many bits, its sign among them; false where it is none or larger, which is left to Python. */
static int read_number(PyObject *object, int bits, int64_t *number)
{
    int overflow;
    if (!PyLong_Check(object))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    int64_t bound = (int64_t)1 << (bits - 1);
    return !overflow && -bound <= *number && *number < bound;
}

/* ---- tuples ------------------------------------------------------------------------------------------------------ */

/* Tell whether something is a type whose instances are laid out as tuples are; an exception is set where it is none. */
static int is_tuple_type(PyObject *object)
{
    PyTypeObject *type = (PyTypeObject *)object;
    if (PyType_Check(object) && PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize &&
        !type->tp_dictoffset)
        return 1;
    PyErr_SetString(PyExc_TypeError, "the type of what is made is no tuple");
    return 0;
}

/* Make an instance of a subclass of tuple that takes over its fields, of which none may be part of a cycle: the collector does not
   look at it. NULL where a field is, or where there is no memory. */
static PyObject *new_tuple(PyObject *type, Py_ssize_t size, PyObject *const *fields)
{
    int is_whole = 1;
    for (Py_ssize_t index = 0; index < size; index++)
        is_whole &= fields[index] != NULL;
    PyTupleObject *made = is_whole ? PyObject_GC_NewVar(PyTupleObject, (PyTypeObject *)type, size) : NULL;
#if PY_VERSION_HEX >= 0x030E0000
    /* Since 3.14 a tuple remembers its hash. */
    if (made)
        made->ob_hash = -1;
#endif
    for (Py_ssize_t index = 0; index < size; index++)
        if (made)
            PyTuple_SET_ITEM((PyObject *)made, index, fields[index]);
        else
            Py_XDECREF(fields[index]);
    return (PyObject *)made;
}

/* ---- a request --------------------------------------------------------------------------------------------------- */

/* API key, version, correlation id, length of the client id. */
#define HEADER_SIZE (2 + 2 + 4 + 2)

static PyObject *read_request_header(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    if (arguments != 2)
        return PyErr_Format(PyExc_TypeError, "read_request_header takes a type and bytes");
    if (!is_tuple_type(args[0]))
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
    return new_tuple(args[0], 5, fields);
}

static PyObject *encode_request(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t api_key, version, correlation_id;
    if (arguments != 6)
        return PyErr_Format(PyExc_TypeError, "encode_request takes three numbers, a name, a body, and whether there are tags");
    if (!PyBytes_Check(args[3]) || !PyBytes_Check(args[4]) || !PyBool_Check(args[5]))
        Py_RETURN_NONE;
    Py_ssize_t name = PyBytes_GET_SIZE(args[3]), body = PyBytes_GET_SIZE(args[4]), tags = args[5] == Py_True;
    if (!read_number(args[0], 16, &api_key) || !read_number(args[1], 16, &version) ||
        !read_number(args[2], 32, &correlation_id) || name > INT16_MAX || body > INT32_MAX - HEADER_SIZE - name - tags)
        Py_RETURN_NONE;
    Py_ssize_t size = HEADER_SIZE + name + tags + body;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, 4 + size);
    if (!frame)
        return NULL;
    uint8_t *at = put(put((uint8_t *)PyBytes_AS_STRING(frame), size, 4), api_key, 2);
    at = put(put(put(at, version, 2), correlation_id, 4), name, 2);
    at = put(put_bytes(at, PyBytes_AS_STRING(args[3]), name), 0, (int)tags);
    put_bytes(at, PyBytes_AS_STRING(args[4]), body);
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
        !read_number(args[1], 32, &timeout_ms) || !PyList_CheckExact(batches) || PyList_GET_SIZE(batches) > INT32_MAX)
        Py_RETURN_NONE;
    Py_ssize_t name = PyUnicode_GET_LENGTH(topic), count = PyList_GET_SIZE(batches), size = PRODUCE_SIZE + name + 4;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *each = PyList_GET_ITEM(batches, index);
        if (!PyTuple_CheckExact(each) || PyTuple_GET_SIZE(each) != 2 || !read_number(PyTuple_GET_ITEM(each, 0), 32, &partition) ||
            !PyBytes_Check(PyTuple_GET_ITEM(each, 1)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(each, 1)) > INT32_MAX)
            Py_RETURN_NONE;
        size += 4 + 4 + PyBytes_GET_SIZE(PyTuple_GET_ITEM(each, 1));
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, size);
    if (!body)
        return NULL;
    uint8_t *at = put(put(put((uint8_t *)PyBytes_AS_STRING(body), -1, 2 + 2), timeout_ms, 4), 1, 4);
    at = put(put_bytes(put(at, name, 2), PyUnicode_DATA(topic), name), count, 4);
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *each = PyList_GET_ITEM(batches, index), *batch = PyTuple_GET_ITEM(each, 1);
        read_number(PyTuple_GET_ITEM(each, 0), 32, &partition);
        at = put(put(at, partition, 4), PyBytes_GET_SIZE(batch), 4);
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
    if (!is_tuple_type(args[0]))
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
            PyLong_FromLongLong((int64_t)take(at + 6, 8)),
            Py_NewRef(no_message),
        };
        PyObject *each = new_tuple(args[0], 4, fields);
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
    MANY(read_request_header), MANY(encode_request), MANY(encode_produce), MANY(decode_produced), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twins", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_twins(void)
{
    no_message = PyUnicode_New(0, 0);
    return no_message ? PyModule_Create(&definition) : NULL;
}
