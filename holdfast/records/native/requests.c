/* Bodies of share-state requests, as values. */

#include "native.h"

/* Longer varints are left to Python, and so are those that take more bytes than they need. */
#define COUNT_BITS_MAX 28
/* Bytes of the smallest topic, and of the smallest share partition. */
#define TOPIC_SIZE_MIN 18
#define PARTITION_SIZE_MIN 5

/* What is left of a body, and what its share partitions are; what takes from it returns NULL, or 0, where that is unusual. */
typedef struct {
    const uint8_t *at, *end;
    PyTypeObject *partition_type;
    const char *layout;
    Py_ssize_t fields;
    int64_t partitions_left, batches_max;
} Body;

/* Take the number of elements, which the bytes left can hold. */
static int take_count(Body *body, Py_ssize_t element_size_min, Py_ssize_t *count)
{
    uint64_t length = 0;
    for (int shift = 0; body->at < body->end && shift < COUNT_BITS_MAX; shift += 7) {
        uint8_t byte = *body->at++;
        length |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *count = (Py_ssize_t)length - 1;
            return byte && *count <= (body->end - body->at) / element_size_min;
        }
    }
    return 0;
}

/* Take the end of a struct without tagged fields. */
static int take_no_tags(Body *body)
{
    return body->at < body->end && !*body->at++;
}

static PyObject *take_string(Body *body)
{
    Py_ssize_t size;
    if (!take_count(body, 1, &size))
        return NULL;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)body->at, size, NULL);
    body->at += size;
    if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return text;
}

/* Take state batches: settled ones packed, a lone one and others as a tuple. */
static PyObject *take_batches(Body *body)
{
    Py_ssize_t count;
    if (!take_count(body, KAFKA_BATCH_SIZE, &count) || count > body->batches_max)
        return NULL;
    PyObject *packed = read_kafka_batches(body->at, count);
    body->at += count * KAFKA_BATCH_SIZE;
    if (packed && (count == 1 || !is_settled(((Packed *)packed)->batches, count)))
        Py_SETREF(packed, unpack(packed));
    return packed;
}

static PyObject *take_field(Body *body, char kind)
{
    if (kind == 'B')
        return take_batches(body);
    if (kind == '-')
        return PyLong_FromLong(-1);
    int size = kind == 'q' ? 8 : 4;
    if (body->end - body->at < size)
        return NULL;
    body->at += size;
    return PyLong_FromLongLong(size == 8 ? take_int64(body->at - 8) : take_int32(body->at - 4));
}

static PyObject *take_partition(Body *body)
{
    PyObject *partition = new_tuple(body->partition_type, body->fields);
    for (Py_ssize_t index = 0; partition && index < body->fields; index++) {
        PyObject *field = take_field(body, body->layout[index]);
        PyTuple_SET_ITEM(partition, index, field);
        if (!field)
            Py_CLEAR(partition);
    }
    if (partition && !take_no_tags(body))
        Py_CLEAR(partition);
    return partition;
}

static PyObject *take_topic(Body *body)
{
    if (body->end - body->at < TOPIC_SIZE_MIN)
        return NULL;
    const char *topic_id = (const char *)body->at;
    Py_ssize_t count;
    body->at += TOPIC_ID_SIZE;
    if (!take_count(body, PARTITION_SIZE_MIN, &count) || (body->partitions_left -= count) < 0)
        return NULL;
    PyObject *partitions = PyList_New(count), *topic = NULL, *id;
    for (Py_ssize_t index = 0; partitions && index < count; index++) {
        PyObject *partition = take_partition(body);
        PyList_SET_ITEM(partitions, index, partition);
        if (!partition)
            Py_CLEAR(partitions);
    }
    if (partitions && take_no_tags(body) && (id = PyBytes_FromStringAndSize(topic_id, TOPIC_ID_SIZE))) {
        topic = PyTuple_Pack(2, id, partitions);
        Py_DECREF(id);
    }
    Py_XDECREF(partitions);
    return topic;
}

static PyObject *take_topics(Body *body)
{
    Py_ssize_t count;
    if (!take_count(body, TOPIC_SIZE_MIN, &count))
        return NULL;
    PyObject *topics = PyList_New(count);
    for (Py_ssize_t index = 0; topics && index < count; index++) {
        PyObject *topic = take_topic(body);
        PyList_SET_ITEM(topics, index, topic);
        if (!topic)
            Py_CLEAR(topics);
    }
    return topics;
}

PyObject *decode_request(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t offset;
    Body body;
    if (arguments != 7 || !is_tuple_type(args[0]) || !is_tuple_type(args[1]) || !PyTuple_Check(args[5]) || PyTuple_GET_SIZE(args[5]) < 2)
        return PyErr_Format(PyExc_TypeError, "decode_request takes two types, a layout, bytes, a number, bounds, and a caller");
    body.partition_type = (PyTypeObject *)args[1];
    if (!(body.layout = PyUnicode_AsUTF8AndSize(args[2], &body.fields)) || !read_number(args[4], &offset) ||
        !read_number(PyTuple_GET_ITEM(args[5], 0), &body.partitions_left) ||
        !read_number(PyTuple_GET_ITEM(args[5], 1), &body.batches_max))
        return NULL;
    if (!PyBytes_Check(args[3]) || offset < 0 || offset > PyBytes_GET_SIZE(args[3]))
        Py_RETURN_NONE;
    body.at = (const uint8_t *)PyBytes_AS_STRING(args[3]) + offset;
    body.end = (const uint8_t *)PyBytes_AS_STRING(args[3]) + PyBytes_GET_SIZE(args[3]);
    PyObject *group_id = take_string(&body), *topics = group_id ? take_topics(&body) : NULL, *request = NULL;
    if (topics && take_no_tags(&body) && body.at == body.end && (request = new_tuple((PyTypeObject *)args[0], 3))) {
        PyTuple_SET_ITEM(request, 0, Py_NewRef(group_id));
        PyTuple_SET_ITEM(request, 1, Py_NewRef(topics));
        PyTuple_SET_ITEM(request, 2, Py_NewRef(args[6]));
        /* Of all that is made here the caller alone may be part of a cycle. */
        PyObject_GC_Track(request);
    }
    Py_XDECREF(group_id);
    Py_XDECREF(topics);
    return request || PyErr_Occurred() ? request : Py_NewRef(Py_None);
}
