/* Record batches that are not compressed: taken apart, and built.

   Source: Apache Kafka's record batch format, magic 2. */

#include "native.h"

/* ---- records of a batch ------------------------------------------------------------------------------------------ */

/* Take bytes behind their length, NULL for a length of -1; false where they are cut short. */
static int take_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **bytes, int64_t *size)
{
    if (!(*at = take_varint(*at, end, 32, size)) || *size < -1 || *size > end - *at)
        return 0;
    *bytes = *size < 0 ? NULL : *at;
    *at += *size < 0 ? 0 : *size;
    return 1;
}

/* Set a field to bytes, or to None; false where there is no memory. */
static int set_bytes(PyObject *tuple, Py_ssize_t index, const uint8_t *bytes, int64_t size)
{
    PyObject *made = bytes ? PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size) : Py_NewRef(Py_None);
    PyTuple_SET_ITEM(tuple, index, made);
    return made != NULL;
}

PyObject *decode_records(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t begin, count, base_offset, from_offset;
    if (arguments != 7 || !is_tuple_type(args[0]) || !PyBytes_Check(args[1]) || !PyBytes_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "decode_records takes a type, a name, bytes, and four numbers");
    if (!read_number(args[3], &begin) || !read_number(args[4], &count) || !read_number(args[5], &base_offset) ||
        !read_number(args[6], &from_offset))
        return NULL;
    PyTypeObject *type = (PyTypeObject *)args[0];
    const char *name = PyBytes_AS_STRING(args[1]);
    Py_ssize_t name_size = PyBytes_GET_SIZE(args[1]), size = PyBytes_GET_SIZE(args[2]);
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(args[2]), *end = at + size;
    /* A delta has 35 bits at most. */
    if (begin < 0 || begin > size || base_offset < 0 || base_offset > INT64_MAX - ((int64_t)1 << 35))
        Py_RETURN_NONE;
    at += begin;
    PyObject *records = PyList_New(0);
    for (int64_t number = 0; records && number < count; number++) {
        const uint8_t *key, *value, *header = NULL, *header_name;
        int64_t length, ignored, delta, key_size, value_size, header_size = -1, name_length, headers, each_size;
        if (!(at = take_varint(at, end, 32, &length)) || length < 1 || length > end - at)
            goto unusual;
        const uint8_t *record_end = at + length;
        /* Attributes, of which there are none. */
        if (*at++ > 0x7F || !(at = take_varint(at, record_end, 64, &ignored)) || !(at = take_varint(at, record_end, 32, &delta)) || delta < 0 ||
            !take_bytes(&at, record_end, &key, &key_size) || !take_bytes(&at, record_end, &value, &value_size) ||
            !(at = take_varint(at, record_end, 32, &headers)) || headers < 0)
            goto unusual;
        for (int64_t index = 0; index < headers; index++) {
            const uint8_t *each;
            if (!take_bytes(&at, record_end, &header_name, &name_length) || !header_name ||
                !take_bytes(&at, record_end, &each, &each_size))
                goto unusual;
            /* A name that is not UTF-8 is refused by who decodes it. */
            for (int64_t byte = 0; byte < name_length; byte++)
                if (header_name[byte] > 0x7F)
                    goto unusual;
            if (name_length == name_size && !memcmp(header_name, name, name_size)) {
                header = each;
                header_size = each_size;
            }
        }
        if (at != record_end)
            goto unusual;
        if (base_offset + delta < from_offset)
            continue;
        PyObject *record = new_tuple(type, 4);
        if (!record || !set_number(record, 0, base_offset + delta) || !set_bytes(record, 1, key, key_size) ||
            !set_bytes(record, 2, value, value_size) || !set_bytes(record, 3, header, header_size) ||
            PyList_Append(records, record) < 0)
            Py_CLEAR(records);
        Py_XDECREF(record);
    }
    if (records && at != end)
        goto unusual;
    return records;
unusual:
    Py_XDECREF(records);
    Py_RETURN_NONE;
}

/* ---- the header of a record -------------------------------------------------------------------------------------- */

#define HEADER_VERSION 1
#define HEADER_SIZE 13

PyObject *encode_header(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t owner_epoch, sequence;
    if (arguments != 2)
        return PyErr_Format(PyExc_TypeError, "encode_header takes an owner epoch and a sequence");
    if (!read_number(args[0], &owner_epoch) || !read_number(args[1], &sequence))
        return leave_overflow();
    if (owner_epoch != (int32_t)owner_epoch)
        Py_RETURN_NONE;
    PyObject *made = PyBytes_FromStringAndSize(NULL, HEADER_SIZE);
    if (made)
        put_big_endian(put_big_endian(put_big_endian((uint8_t *)PyBytes_AS_STRING(made), HEADER_VERSION, 1), owner_epoch, 4), sequence, 8);
    return made;
}

/* ---- a batch of records ------------------------------------------------------------------------------------------ */

/* Where the head of a batch ends, its length begins to count, and its checksum begins to check. */
#define BATCH_HEAD_SIZE 61
#define LENGTH_FROM 12
#define CHECKED_FROM 21
#define BATCH_MAGIC 2

/* How many bytes a number takes as a zigzag varint that is not negative. */
static inline Py_ssize_t varint_size(Py_ssize_t number)
{
    Py_ssize_t bytes = 1;
    for (uint64_t zigzag = (uint64_t)number << 1; zigzag > 0x7F; zigzag >>= 7)
        bytes++;
    return bytes;
}

/* The bytes of a field with its length, which is -1 where the field is None. */
static inline Py_ssize_t field_size(PyObject *field)
{
    return field == Py_None ? 1 : varint_size(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field);
}

static inline uint8_t *put_field(uint8_t *at, PyObject *field)
{
    if (field == Py_None)
        return put_number(at, -1);
    at = put_number(at, PyBytes_GET_SIZE(field));
    memcpy(at, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field));
    return at + PyBytes_GET_SIZE(field);
}

/* The bytes of a record behind its length: attributes, no time since the batch's, its number, key, value, and one header. */
static inline Py_ssize_t record_size(PyObject *record, Py_ssize_t number, PyObject *header_name)
{
    return 1 + 1 + varint_size(number) + field_size(PyTuple_GET_ITEM(record, 0)) + field_size(PyTuple_GET_ITEM(record, 1)) + 1 +
           field_size(header_name) + field_size(PyTuple_GET_ITEM(record, 2));
}

static int is_record(PyObject *record)
{
    if (PyTuple_Check(record) && PyTuple_GET_SIZE(record) == 3 && PyBytes_Check(PyTuple_GET_ITEM(record, 0)) &&
        (PyBytes_Check(PyTuple_GET_ITEM(record, 1)) || PyTuple_GET_ITEM(record, 1) == Py_None) &&
        PyBytes_Check(PyTuple_GET_ITEM(record, 2)))
        return 1;
    PyErr_SetString(PyExc_TypeError, "a record is a tuple of a key, a value or None, and a header, all of them bytes");
    return 0;
}

PyObject *encode_records(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t timestamp_ms, room, overhead;
    if (arguments != 5 || !PyList_Check(args[0]) || !PyBytes_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "encode_records takes a list, a name, and three numbers");
    if (!read_number(args[2], &timestamp_ms) || !read_number(args[3], &room) || !read_number(args[4], &overhead))
        return NULL;
    if (room != (int32_t)room || overhead < 0 || overhead > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "room and overhead are numbers of bytes, which a batch counts with 32 bits");
    PyObject *records = args[0], *header_name = args[1];
    Py_ssize_t count, size = BATCH_HEAD_SIZE, taken = 0;
    for (count = 0; count < PyList_GET_SIZE(records); count++) {
        PyObject *record = PyList_GET_ITEM(records, count);
        if (!is_record(record))
            return NULL;
        PyObject *value = PyTuple_GET_ITEM(record, 1);
        Py_ssize_t bytes = PyBytes_GET_SIZE(PyTuple_GET_ITEM(record, 0)) + (value == Py_None ? 0 : PyBytes_GET_SIZE(value));
        if (count && taken + bytes > room - overhead * (count + 1))
            break;
        Py_ssize_t length = record_size(record, count, header_name);
        taken += bytes;
        size += varint_size(length) + length;
        /* What a length of four bytes does not hold; each number above stays far below its own bound then. */
        if (size > INT32_MAX)
            return PyErr_Format(PyExc_OverflowError, "a batch of more than %d bytes", INT32_MAX);
    }
    if (!count)
        return PyErr_Format(PyExc_ValueError, "a batch has a record");
    PyObject *batch = PyBytes_FromStringAndSize(NULL, size);
    if (!batch)
        return NULL;
    uint8_t *begin = (uint8_t *)PyBytes_AS_STRING(batch);
    uint8_t *at = put_big_endian(put_big_endian(begin, 0, 8), size - LENGTH_FROM, 4); /* base offset, length */
    at = put_big_endian(put_big_endian(at, -1, 4), BATCH_MAGIC, 1);                   /* leader epoch */
    at = put_big_endian(put_big_endian(at, 0, 4 + 2), count - 1, 4);                  /* checksum, attributes, last number */
    at = put_big_endian(put_big_endian(at, timestamp_ms, 8), timestamp_ms, 8);        /* of the first, and the latest */
    at = put_big_endian(put_big_endian(put_big_endian(at, -1, 8), -1, 2), -1, 4);     /* of no producer */
    at = put_big_endian(at, count, 4);
    for (Py_ssize_t number = 0; number < count; number++) {
        PyObject *record = PyList_GET_ITEM(records, number);
        at = put_number(at, record_size(record, number, header_name));
        *at++ = 0;
        *at++ = 0;
        at = put_field(put_field(put_number(at, number), PyTuple_GET_ITEM(record, 0)), PyTuple_GET_ITEM(record, 1));
        at = put_field(put_field(put_number(at, 1), header_name), PyTuple_GET_ITEM(record, 2));
    }
    put_big_endian(begin + CHECKED_FROM - 4, compute_crc32c(begin + CHECKED_FROM, size - CHECKED_FROM), 4);
    return Py_BuildValue("(Nnn)", batch, count, taken);
}
