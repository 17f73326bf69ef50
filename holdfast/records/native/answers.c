/* The answers to share-state calls in which all went well: topics, and of each share partition that there is no error, and its state
   where the call reads it. */

#include "native.h"

/* Partition, error code, that there is no message; then come the state and its batches, and that there are no tags. */
#define OUTCOME_SIZE 7
/* State epoch, start offset. */
#define STATE_SIZE 12
#define COUNT_SIZE_MAX 10

/* Fields of a result: error code, message, and where it has a state its epoch, its start offset and its batches. */
#define OUTCOME_FIELDS 2
#define READ_FIELDS 5

/* Put a number of elements, as one more than there are. */
static uint8_t *put_count(uint8_t *at, Py_ssize_t count)
{
    size_t left = (size_t)count + 1;
    for (; left > 0x7F; left >>= 7)
        *at++ = (uint8_t)(left | 0x80);
    *at++ = (uint8_t)left;
    return at;
}

/* Put what there is to say of a share partition; NULL where it is unusual. */
static uint8_t *put_result(uint8_t *at, PyObject *partition, PyObject *result)
{
    int64_t index, error_code, epoch, start;
    if (!read_within(partition, INT32_MIN, INT32_MAX, &index) || !read_within(PyTuple_GET_ITEM(result, 0), 0, 0, &error_code) ||
        PyTuple_GET_ITEM(result, 1) != Py_None)
        return NULL;
    at = put_big_endian(put_big_endian(at, (uint64_t)index, 4), 0, OUTCOME_SIZE - 4);
    if (PyTuple_GET_SIZE(result) == READ_FIELDS) {
        PyObject *batches = PyTuple_GET_ITEM(result, 4);
        if (!read_within(PyTuple_GET_ITEM(result, 2), INT32_MIN, INT32_MAX, &epoch) ||
            !read_within(PyTuple_GET_ITEM(result, 3), INT64_MIN, INT64_MAX, &start))
            return NULL;
        at = put_big_endian(put_big_endian(at, (uint64_t)epoch, 4), (uint64_t)start, 8);
        at = put_kafka_batches(put_count(at, Py_SIZE(batches)), ((Packed *)batches)->batches, Py_SIZE(batches));
        if (!at)
            return NULL;
    }
    *at++ = 0;
    return at;
}

/* Return how many bytes the results of a topic take at most; -1 where they are unusual. */
static Py_ssize_t measure_results(PyObject *results, Py_ssize_t fields)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(results); index++) {
        PyObject *pair = PyList_GET_ITEM(results, index);
        PyObject *result = PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 ? PyTuple_GET_ITEM(pair, 1) : NULL;
        if (!result || !PyTuple_Check(result) || PyTuple_GET_SIZE(result) != fields)
            return -1;
        size += OUTCOME_SIZE + 1;
        if (fields == READ_FIELDS) {
            PyObject *batches = PyTuple_GET_ITEM(result, 4);
            if (!Py_IS_TYPE(batches, &packed_type))
                return -1;
            size += STATE_SIZE + COUNT_SIZE_MAX + Py_SIZE(batches) * KAFKA_BATCH_SIZE;
        }
    }
    return size;
}

/* Return how many bytes an answer takes at most; -1 where it is unusual. */
static Py_ssize_t measure(PyObject *response, Py_ssize_t fields)
{
    if (!PyList_CheckExact(response))
        return -1;
    Py_ssize_t size = COUNT_SIZE_MAX + 1;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(response); index++) {
        PyObject *pair = PyList_GET_ITEM(response, index);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2)
            return -1;
        PyObject *topic_id = PyTuple_GET_ITEM(pair, 0), *results = PyTuple_GET_ITEM(pair, 1);
        if (!PyBytes_Check(topic_id) || PyBytes_GET_SIZE(topic_id) != TOPIC_ID_SIZE || !PyList_CheckExact(results))
            return -1;
        Py_ssize_t taken = measure_results(results, fields);
        if (taken < 0)
            return -1;
        size += TOPIC_ID_SIZE + COUNT_SIZE_MAX + taken + 1;
    }
    return size;
}

/* Put an answer that was measured; NULL where it is unusual. */
static uint8_t *put_answer(uint8_t *at, PyObject *response)
{
    at = put_count(at, PyList_GET_SIZE(response));
    for (Py_ssize_t topic = 0; topic < PyList_GET_SIZE(response); topic++) {
        PyObject *pair = PyList_GET_ITEM(response, topic), *results = PyTuple_GET_ITEM(pair, 1);
        memcpy(at, PyBytes_AS_STRING(PyTuple_GET_ITEM(pair, 0)), TOPIC_ID_SIZE);
        at = put_count(at + TOPIC_ID_SIZE, PyList_GET_SIZE(results));
        for (Py_ssize_t index = 0; index < PyList_GET_SIZE(results); index++) {
            PyObject *each = PyList_GET_ITEM(results, index);
            if (!(at = put_result(at, PyTuple_GET_ITEM(each, 0), PyTuple_GET_ITEM(each, 1))))
                return NULL;
        }
        *at++ = 0;
    }
    *at++ = 0;
    return at;
}

static PyObject *encode_answer(PyObject *response, Py_ssize_t fields)
{
    Py_ssize_t size_max = measure(response, fields);
    if (size_max < 0)
        Py_RETURN_NONE;
    uint8_t few[512], *begin = few;
    if (size_max > (Py_ssize_t)sizeof few && !(begin = PyMem_Malloc(size_max)))
        return PyErr_NoMemory();
    /* No code in Python runs before it is put, so it is as it was measured. */
    uint8_t *end = put_answer(begin, response);
    PyObject *made = end ? PyBytes_FromStringAndSize((char *)begin, end - begin) : Py_NewRef(Py_None);
    if (begin != few)
        PyMem_Free(begin);
    return made;
}

PyObject *encode_outcomes(PyObject *module, PyObject *response)
{
    return encode_answer(response, OUTCOME_FIELDS);
}

PyObject *encode_states(PyObject *module, PyObject *response)
{
    return encode_answer(response, READ_FIELDS);
}
