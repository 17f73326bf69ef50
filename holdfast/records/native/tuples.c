/* Tuples and numbers of Python: made, checked, and kept from the collector. */

#include "native.h"

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

/* ---- makers ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyTypeObject *type;
} Maker;

static PyObject *call_maker(PyObject *self, PyObject *const *args, size_t arguments, PyObject *names)
{
    if (PyVectorcall_NARGS(arguments) != 1 || names || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "a maker takes a tuple of all fields");
    Py_ssize_t size = PyTuple_GET_SIZE(args[0]);
    PyObject *made = new_tuple(((Maker *)self)->type, size);
    if (!made)
        return NULL;
    for (Py_ssize_t index = 0; index < size; index++)
        PyTuple_SET_ITEM(made, index, Py_NewRef(PyTuple_GET_ITEM(args[0], index)));
    PyObject_GC_Track(made);
    return made;
}

static void dealloc_maker(PyObject *self)
{
    Py_DECREF(((Maker *)self)->type);
    PyObject_Free(self);
}

PyTypeObject maker_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "holdfast.records.native.twins.Maker",
    .tp_basicsize = sizeof(Maker),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_dealloc = dealloc_maker,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Maker, call),
};

PyObject *maker(PyObject *module, PyObject *type)
{
    if (!is_tuple_type(type))
        return PyErr_Format(PyExc_TypeError, "only subclasses of tuple have makers");
    Maker *made = PyObject_New(Maker, &maker_type);
    if (made) {
        made->call = call_maker;
        made->type = (PyTypeObject *)Py_NewRef(type);
    }
    return (PyObject *)made;
}
