/* Batches that are settled and whose numbers have the usual range: an object of plain numbers, from which a StateBatch is made for
   whoever asks for one. */

#include "native.h"

static PyTypeObject packed_iterator_type;

PyObject *nothing;

int is_settled(const Batch *batches, Py_ssize_t size)
{
    for (Py_ssize_t index = 0; index < size; index++) {
        const Batch *each = &batches[index];
        if (each->last < each->first)
            return 0;
        if (index && (each->first <= each[-1].last || (each->first == each[-1].last + 1 && is_same(each, each - 1))))
            return 0;
    }
    return 1;
}

Packed *new_packed(Py_ssize_t size)
{
    return PyObject_NewVar(Packed, &packed_type, size);
}

PyObject *pack_array(const Batch *batches, Py_ssize_t size)
{
    if (!size)
        return Py_NewRef(nothing);
    Packed *packed = new_packed(size);
    if (packed)
        memcpy(packed->batches, batches, size * sizeof(Batch));
    return (PyObject *)packed;
}

Py_ssize_t count_batches(PyObject *held)
{
    return PyTuple_Check(held) || Py_IS_TYPE(held, &packed_type) ? Py_SIZE(held) : -1;
}

int copy_batches(PyObject *held, Batch *batches)
{
    Py_ssize_t size = Py_SIZE(held);
    if (Py_IS_TYPE(held, &packed_type)) {
        memcpy(batches, ((Packed *)held)->batches, size * sizeof(Batch));
        return 1;
    }
    int are_usual = 1;
    for (Py_ssize_t index = 0; index < size; index++) {
        PyObject *batch = PyTuple_GET_ITEM(held, index);
        int64_t numbers[BATCH_FIELDS];
        int is_beyond = 0;
        if (!is_batch(batch))
            return -1;
        for (Py_ssize_t field = 0; field < BATCH_FIELDS; field++) {
            if (!is_number(PyTuple_GET_ITEM(batch, field)))
                return -1;
            numbers[field] = PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(batch, field), &is_beyond);
            are_usual &= !is_beyond;
        }
        are_usual &= set_batch(&batches[index], numbers);
    }
    return are_usual;
}

PyObject *pack_numbers(PyObject *held)
{
    if (Py_IS_TYPE(held, &packed_type))
        return Py_NewRef(held);
    Packed *packed = new_packed(Py_SIZE(held));
    int are_usual = packed ? copy_batches(held, packed->batches) : -1;
    if (are_usual > 0)
        return (PyObject *)packed;
    Py_XDECREF(packed);
    return are_usual < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *pack(PyObject *module, PyObject *held)
{
    if (count_batches(held) < 0)
        return PyErr_Format(PyExc_TypeError, "batches are packed or a tuple");
    PyObject *packed = pack_numbers(held);
    if (packed && packed != Py_None && !is_settled(((Packed *)packed)->batches, Py_SIZE(packed)))
        Py_SETREF(packed, Py_NewRef(Py_None));
    return packed;
}

PyObject *are_well_formed(PyObject *module, PyObject *held)
{
    int are_well = Py_IS_TYPE(held, &packed_type);
    for (Py_ssize_t index = 0; are_well && index < Py_SIZE(held); index++) {
        const Batch *batch = &((Packed *)held)->batches[index];
        are_well = is_plain(batch) && batch->count >= 0 &&
                   (batch->state == AVAILABLE || batch->state == ACKNOWLEDGED || batch->state == ARCHIVING || batch->state == ARCHIVED);
    }
    return PyBool_FromLong(are_well);
}

/* Make a tuple of every so many batches from one on. */
static PyObject *make_tuple(const Packed *packed, Py_ssize_t begin, Py_ssize_t step, Py_ssize_t size)
{
    PyObject *made = PyTuple_New(size);
    for (Py_ssize_t index = 0; made && index < size; index++) {
        PyObject *batch = make_batch(&packed->batches[begin + index * step]);
        if (!batch)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, index, batch);
    }
    return made;
}

PyObject *unpack(PyObject *packed)
{
    return make_tuple((Packed *)packed, 0, 1, Py_SIZE(packed));
}

static Py_ssize_t packed_length(PyObject *self)
{
    return Py_SIZE(self);
}

static PyObject *packed_item(PyObject *self, Py_ssize_t index)
{
    if (index < 0 || index >= Py_SIZE(self))
        return PyErr_Format(PyExc_IndexError, "batch index out of range");
    return make_batch(&((Packed *)self)->batches[index]);
}

static PyObject *packed_subscript(PyObject *self, PyObject *key)
{
    if (PySlice_Check(key)) {
        Py_ssize_t begin, end, step;
        if (PySlice_Unpack(key, &begin, &end, &step) < 0)
            return NULL;
        Py_ssize_t size = PySlice_AdjustIndices(Py_SIZE(self), &begin, &end, step);
        return make_tuple((Packed *)self, begin, step, size);
    }
    Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred())
        return NULL;
    return packed_item(self, index < 0 ? index + Py_SIZE(self) : index);
}

/* As tuples are compared, and so be equal to one with the same batches. */
static PyObject *packed_compare(PyObject *self, PyObject *other, int operator)
{
    if ((operator == Py_EQ || operator == Py_NE) && Py_IS_TYPE(other, &packed_type)) {
        size_t bytes = Py_SIZE(self) * sizeof(Batch);
        int is_same = Py_SIZE(self) == Py_SIZE(other) && !memcmp(((Packed *)self)->batches, ((Packed *)other)->batches, bytes);
        return PyBool_FromLong(is_same == (operator == Py_EQ));
    }
    if (!PyTuple_Check(other) && !Py_IS_TYPE(other, &packed_type))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *one = unpack(self), *two = Py_IS_TYPE(other, &packed_type) ? unpack(other) : Py_NewRef(other);
    PyObject *answer = one && two ? PyObject_RichCompare(one, two, operator) : NULL;
    Py_XDECREF(one);
    Py_XDECREF(two);
    return answer;
}

static Py_hash_t packed_hash(PyObject *self)
{
    PyObject *tuple = unpack(self);
    Py_hash_t hash = tuple ? PyObject_Hash(tuple) : -1;
    Py_XDECREF(tuple);
    return hash;
}

static PyObject *packed_repr(PyObject *self)
{
    PyObject *tuple = unpack(self), *text = tuple ? PyObject_Repr(tuple) : NULL;
    Py_XDECREF(tuple);
    return text;
}

/* Copies and what other processes are sent are the twin in Python, for these may run another build. */
static PyObject *packed_reduce(PyObject *self, PyObject *unused)
{
    PyObject *tuple = unpack(self);
    return tuple ? Py_BuildValue("O(N)", settled_type, tuple) : NULL;
}

static PyObject *packed_index(PyObject *self, PyObject *args)
{
    PyObject *tuple = unpack(self), *method = tuple ? PyObject_GetAttrString(tuple, "index") : NULL;
    PyObject *answer = method ? PyObject_CallObject(method, args) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(method);
    return answer;
}

static PyObject *packed_count(PyObject *self, PyObject *wanted)
{
    PyObject *tuple = unpack(self), *answer = tuple ? PyObject_CallMethod(tuple, "count", "(O)", wanted) : NULL;
    Py_XDECREF(tuple);
    return answer;
}

typedef struct {
    PyObject_HEAD
    Packed *packed;
    Py_ssize_t at;
} PackedIterator;

static PyObject *packed_iterator(PyObject *self)
{
    PackedIterator *made = PyObject_New(PackedIterator, &packed_iterator_type);
    if (made) {
        made->packed = (Packed *)Py_NewRef(self);
        made->at = 0;
    }
    return (PyObject *)made;
}

static PyObject *packed_iterator_next(PyObject *self)
{
    PackedIterator *iterator = (PackedIterator *)self;
    if (iterator->at >= Py_SIZE(iterator->packed))
        return NULL;
    return make_batch(&iterator->packed->batches[iterator->at++]);
}

static void packed_iterator_dealloc(PyObject *self)
{
    Py_DECREF(((PackedIterator *)self)->packed);
    PyObject_Free(self);
}

static void packed_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

static PyTypeObject packed_iterator_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "holdfast.records.native.twins.PackedBatchesIterator",
    .tp_basicsize = sizeof(PackedIterator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = packed_iterator_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = packed_iterator_next,
};

static PySequenceMethods packed_as_sequence = {.sq_length = packed_length, .sq_item = packed_item};
static PyMappingMethods packed_as_mapping = {.mp_length = packed_length, .mp_subscript = packed_subscript};
static PyMethodDef packed_methods[] = {
    {"__reduce__", packed_reduce, METH_NOARGS, NULL},
    {"index", packed_index, METH_VARARGS, NULL},
    {"count", packed_count, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject packed_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "holdfast.records.native.twins.PackedBatches",
    .tp_basicsize = offsetof(Packed, batches),
    .tp_itemsize = sizeof(Batch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_SEQUENCE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = packed_dealloc,
    .tp_as_sequence = &packed_as_sequence,
    .tp_as_mapping = &packed_as_mapping,
    .tp_methods = packed_methods,
    .tp_hash = packed_hash,
    .tp_repr = packed_repr,
    .tp_richcompare = packed_compare,
    .tp_iter = packed_iterator,
};

int prepare_packed(void)
{
    return PyType_Ready(&packed_type) < 0 || PyType_Ready(&packed_iterator_type) < 0 || !(nothing = (PyObject *)new_packed(0)) ? -1 : 0;
}
