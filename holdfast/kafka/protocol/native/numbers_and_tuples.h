/* What both extensions that are written in C do with numbers and tuples, in line for each file.

   What puts and takes is about bytes, what reads about an object of Python's. */

#ifndef HOLDFAST_NUMBERS_AND_TUPLES_H
#define HOLDFAST_NUMBERS_AND_TUPLES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* ---- numbers in big-endian order --------------------------------------------------------------------------------- */

static inline uint8_t *put_big_endian(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes--)
        *at++ = (uint8_t)(number >> 8 * bytes);
    return at;
}

/* These are written out so that the compiler takes each number at once. */
static inline int16_t take_int16(const uint8_t *at)
{
    return (int16_t)(at[0] << 8 | at[1]);
}

static inline int32_t take_int32(const uint8_t *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static inline int64_t take_int64(const uint8_t *at)
{
    return (int64_t)((uint64_t)(uint32_t)take_int32(at) << 32 | (uint32_t)take_int32(at + 4));
}

/* ---- objects of Python's ----------------------------------------------------------------------------------------- */

/* Read a number from the lowest to the highest one; false, without an exception, where it is none or lies beyond. */
static inline int read_within(PyObject *object, int64_t lowest, int64_t highest, int64_t *number)
{
    int is_beyond = 1;
    if (PyLong_Check(object))
        *number = PyLong_AsLongLongAndOverflow(object, &is_beyond);
    return !is_beyond && lowest <= *number && *number <= highest;
}

/* Tell whether something is a type whose instances are laid out as tuples are. */
static inline int is_tuple_type(PyObject *object)
{
    PyTypeObject *type = (PyTypeObject *)object;
    return PyType_Check(object) && PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize &&
           !type->tp_dictoffset;
}

/* Make an instance of a subclass of tuple without its fields, unknown to the collector. */
static inline PyObject *new_tuple(PyTypeObject *type, Py_ssize_t size)
{
    PyTupleObject *made = PyObject_GC_NewVar(PyTupleObject, type, size);
    if (!made)
        return NULL;
#if PY_VERSION_HEX >= 0x030E0000
    /* Since 3.14 a tuple remembers its hash. */
    made->ob_hash = -1;
#endif
    for (Py_ssize_t index = 0; index < size; index++)
        PyTuple_SET_ITEM((PyObject *)made, index, NULL);
    return (PyObject *)made;
}

#endif
