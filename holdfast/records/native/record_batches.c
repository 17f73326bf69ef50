/* The records of a record batch. */

#include "native.h"

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
    if (arguments != 7 || !PyType_Check(args[0]) || !is_tuple_type((PyTypeObject *)args[0]) ||
        !PyBytes_Check(args[1]) || !PyBytes_Check(args[2]))
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
        at++; /* attributes, of which there are none */
        if (!(at = take_varint(at, record_end, 64, &ignored)) || !(at = take_varint(at, record_end, 32, &delta)) || delta < 0 ||
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
