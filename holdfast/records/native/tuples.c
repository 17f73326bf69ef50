/* Tuples and numbers of Python: made, checked, and kept from the collector. */

#include "native.h"

int is_tuple_type(PyTypeObject *type)
{
    return PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize && !type->tp_dictoffset;
}

PyObject *make_batch(const Batch *batch)
{
    PyObject *made = new_tuple(state_batch_type, BATCH_FIELDS);
    if (made && set_number(made, 0, batch->first) && set_number(made, 1, batch->last) &&
        set_number(made, 2, batch->state) && set_number(made, 3, batch->count))
        return made;
    Py_XDECREF(made);
    return NULL;
}

int is_number(PyObject *object)
{
    /* What only acts as one would run code in Python, which may change the list that we walk through. */
    if (!PyLong_Check(object))
        PyErr_Format(PyExc_TypeError, "a number is no %s", Py_TYPE(object)->tp_name);
    return PyLong_Check(object);
}

PyObject *leave_overflow(void)
{
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

int is_batch(PyObject *object)
{
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == BATCH_FIELDS)
        return 1;
    PyErr_SetString(PyExc_TypeError, "a state batch is a tuple of four numbers");
    return 0;
}

PyObject *untrack(PyObject *module, PyObject *object)
{
    if (!PyTuple_Check(object))
        return PyErr_Format(PyExc_TypeError, "only a tuple may be unknown to the collector");
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(object); index++)
        if (PyObject_GC_IsTracked(PyTuple_GET_ITEM(object, index)))
            Py_RETURN_NONE;
    if (PyObject_GC_IsTracked(object))
        PyObject_GC_UnTrack(object);
    Py_RETURN_NONE;
}

PyObject *untrack_map(PyObject *module, PyObject *object)
{
    if (!PyDict_CheckExact(object))
        return PyErr_Format(PyExc_TypeError, "only a dictionary may be unknown to the collector");
    if (PyObject_GC_IsTracked(object))
        PyObject_GC_UnTrack(object);
    Py_RETURN_NONE;
}
