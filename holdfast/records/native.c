/* The inner loops of records, in C: values of updates and snapshots, combining.

   Each function is the twin of one in Python and answers the same; where a case is unusual it answers None, and the caller goes
   the way in Python. `native.pyi` says what each takes and gives; `tests/pure/records/test_native.py` compares them case by case.

   Batches and values hold numbers and each other only, so they cannot be part of a cycle, and the collector is told not to look.

   Batches that are settled and whose numbers have the usual range are packed: an object of plain numbers, from which a StateBatch is
   made for whoever asks for one. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* At most so many batches are combined here; more of them are seldom, and go the way in Python. */
#define BATCHES_MAX 64
/* A 64-bit zigzag number as a varint. */
#define NUMBER_BYTES_MAX 10
/* Longer varints are left to fastavro, as `numbers.decode_numbers` does. */
#define NUMBER_BITS_MAX 56
#define BATCH_FIELDS 4
#define STATE_FIELDS 11
/* A batch in Kafka's form: two offsets, a state of a byte, a count of two, and that there are no tags. */
#define KAFKA_BATCH_SIZE 20

/* Its numbers lie side by side without a gap, so batches are equal where their bytes are. */
typedef struct {
    int64_t first, last;
    int32_t state, count;
} Batch;

/* Settled batches. */
typedef struct {
    PyObject_VAR_HEAD
    Batch batches[];
} Packed;

static PyTypeObject *state_batch_type, *settled_type, *update_type, *snapshot_type;
static PyTypeObject packed_type, packed_iterator_type;
/* Packed batches of which there are none. */
static PyObject *nothing;

/* ---- tuples ------------------------------------------------------------------------------------------------------ */

/* Tell whether the instances of a type are laid out as tuples are. */
static int is_tuple_type(PyTypeObject *type)
{
    return PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize && !type->tp_dictoffset;
}

/* Make an instance of a subclass of tuple without its fields, unknown to the collector. */
static PyObject *new_tuple(PyTypeObject *type, Py_ssize_t size)
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

/* Set a field to a number; false where there is no memory. */
static int set_number(PyObject *tuple, Py_ssize_t index, int64_t number)
{
    PyObject *made = PyLong_FromLongLong(number);
    PyTuple_SET_ITEM(tuple, index, made);
    return made != NULL;
}

static PyObject *make_batch(const Batch *batch)
{
    PyObject *made = new_tuple(state_batch_type, BATCH_FIELDS);
    if (made && set_number(made, 0, batch->first) && set_number(made, 1, batch->last) &&
        set_number(made, 2, batch->state) && set_number(made, 3, batch->count))
        return made;
    Py_XDECREF(made);
    return NULL;
}

/* Tell whether something is a number; an exception is set where it is none. */
static int is_number(PyObject *object)
{
    /* What only acts as one would run code in Python, which may change the list that we walk through. */
    if (!PyLong_Check(object))
        PyErr_Format(PyExc_TypeError, "a number is no %s", Py_TYPE(object)->tp_name);
    return PyLong_Check(object);
}

/* Read a number; false where it is none, or too large, with an exception set. */
static int read_number(PyObject *object, int64_t *number)
{
    if (!is_number(object))
        return 0;
    *number = PyLong_AsLongLong(object);
    return *number != -1 || !PyErr_Occurred();
}

/* Leave what is too large to Python. */
static PyObject *leave_overflow(void)
{
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* Tell whether something is a batch; an exception is set where it is none. */
static int is_batch(PyObject *object)
{
    if (PyTuple_Check(object) && PyTuple_GET_SIZE(object) == BATCH_FIELDS)
        return 1;
    PyErr_SetString(PyExc_TypeError, "a state batch is a tuple of four numbers");
    return 0;
}

/* Set a batch to four numbers; false where its state or its count is beyond all that a log has, which is left to Python. */
static int set_batch(Batch *batch, const int64_t *numbers)
{
    *batch = (Batch){numbers[0], numbers[1], (int32_t)numbers[2], (int32_t)numbers[3]};
    return batch->state == numbers[2] && batch->count == numbers[3];
}

/* ---- packed batches ---------------------------------------------------------------------------------------------- */

static int is_same(const Batch *one, const Batch *other)
{
    return one->count == other->count && one->state == other->state;
}

/* Tell whether batches are ascending, free of overlaps and joined where they can be. */
static int is_settled(const Batch *batches, Py_ssize_t size)
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

static Packed *new_packed(Py_ssize_t size)
{
    return PyObject_NewVar(Packed, &packed_type, size);
}

static PyObject *pack_array(const Batch *batches, Py_ssize_t size)
{
    if (!size)
        return Py_NewRef(nothing);
    Packed *packed = new_packed(size);
    if (packed)
        memcpy(packed->batches, batches, size * sizeof(Batch));
    return (PyObject *)packed;
}

/* The number of batches in what holds them, -1 where that is neither a tuple nor packed. */
static Py_ssize_t count_batches(PyObject *held)
{
    return PyTuple_Check(held) || Py_IS_TYPE(held, &packed_type) ? Py_SIZE(held) : -1;
}

/* Copy batches to an array that has room for them; 0 where one is unusual, -1 with an exception set. */
static int copy_batches(PyObject *held, Batch *batches)
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

/* Return batches side by side, settled or not; None where one is unusual. */
static PyObject *pack_numbers(PyObject *held)
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

static PyObject *pack(PyObject *module, PyObject *held)
{
    if (count_batches(held) < 0)
        return PyErr_Format(PyExc_TypeError, "batches are packed or a tuple");
    PyObject *packed = pack_numbers(held);
    if (packed && packed != Py_None && !is_settled(((Packed *)packed)->batches, Py_SIZE(packed)))
        Py_SETREF(packed, Py_NewRef(Py_None));
    return packed;
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

static PyObject *packed_tuple(PyObject *self)
{
    return make_tuple((Packed *)self, 0, 1, Py_SIZE(self));
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
    PyObject *one = packed_tuple(self), *two = Py_IS_TYPE(other, &packed_type) ? packed_tuple(other) : Py_NewRef(other);
    PyObject *answer = one && two ? PyObject_RichCompare(one, two, operator) : NULL;
    Py_XDECREF(one);
    Py_XDECREF(two);
    return answer;
}

static Py_hash_t packed_hash(PyObject *self)
{
    PyObject *tuple = packed_tuple(self);
    Py_hash_t hash = tuple ? PyObject_Hash(tuple) : -1;
    Py_XDECREF(tuple);
    return hash;
}

static PyObject *packed_repr(PyObject *self)
{
    PyObject *tuple = packed_tuple(self), *text = tuple ? PyObject_Repr(tuple) : NULL;
    Py_XDECREF(tuple);
    return text;
}

/* Copies and what other processes are sent are the twin in Python, for these may run another build. */
static PyObject *packed_reduce(PyObject *self, PyObject *unused)
{
    PyObject *tuple = packed_tuple(self);
    return tuple ? Py_BuildValue("O(N)", settled_type, tuple) : NULL;
}

static PyObject *packed_index(PyObject *self, PyObject *args)
{
    PyObject *tuple = packed_tuple(self), *method = tuple ? PyObject_GetAttrString(tuple, "index") : NULL;
    PyObject *answer = method ? PyObject_CallObject(method, args) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(method);
    return answer;
}

static PyObject *packed_count(PyObject *self, PyObject *wanted)
{
    PyObject *tuple = packed_tuple(self), *answer = tuple ? PyObject_CallMethod(tuple, "count", "(O)", wanted) : NULL;
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
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "holdfast.records.native.PackedBatchesIterator",
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

static PyTypeObject packed_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "holdfast.records.native.PackedBatches",
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

/* ---- the collector ----------------------------------------------------------------------------------------------- */

static PyObject *untrack(PyObject *module, PyObject *object)
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

static PyObject *untrack_map(PyObject *module, PyObject *object)
{
    if (!PyDict_CheckExact(object))
        return PyErr_Format(PyExc_TypeError, "only a dictionary may be unknown to the collector");
    if (PyObject_GC_IsTracked(object))
        PyObject_GC_UnTrack(object);
    Py_RETURN_NONE;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static uint8_t *put_number(uint8_t *at, int64_t number)
{
    uint64_t zigzag = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    while (zigzag > 0x7F) {
        *at++ = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    *at++ = (uint8_t)zigzag;
    return at;
}

/* Take a varint of at most so many bits; NULL where it is cut short or longer. */
static inline const uint8_t *take_varint(const uint8_t *at, const uint8_t *end, int bits, int64_t *number)
{
    uint64_t zigzag = 0;
    for (int shift = 0; at < end && shift < bits; shift += 7) {
        uint8_t byte = *at++;
        zigzag |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return at;
        }
    }
    return NULL;
}

/* Take the next number; NULL where it is cut short or very large. */
static const uint8_t *take_number(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    return take_varint(at, end, NUMBER_BITS_MAX, number);
}

/* Take the next four numbers as a batch; NULL where they are cut short, very large or unusual. */
static const uint8_t *take_batch(const uint8_t *at, const uint8_t *end, Batch *batch)
{
    int64_t numbers[BATCH_FIELDS];
    for (Py_ssize_t index = 0; index < BATCH_FIELDS; index++)
        if (!(at = take_number(at, end, &numbers[index])))
            return NULL;
    return set_batch(batch, numbers) ? at : NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Encode the fields of a value, whose batches lie at one place among its numbers. */
static PyObject *encode_fields(PyObject *value, Py_ssize_t batches_at, PyObject *prefix)
{
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) <= batches_at || !PyBytes_Check(prefix) ||
        count_batches(PyTuple_GET_ITEM(value, batches_at)) < 0)
        return PyErr_Format(PyExc_TypeError, "a value is a tuple of numbers and of batches, packed or as a tuple");
    PyObject *batches = PyTuple_GET_ITEM(value, batches_at);
    const Packed *packed = Py_IS_TYPE(batches, &packed_type) ? (Packed *)batches : NULL;
    Py_ssize_t fields = PyTuple_GET_SIZE(value), count = count_batches(batches), prefix_size = PyBytes_GET_SIZE(prefix);
    /* The count of the batches before them, and the zero behind. */
    Py_ssize_t numbers_max = fields - 1 + count * BATCH_FIELDS + 2;
    uint8_t few[512], *begin = few;
    Py_ssize_t size_max = prefix_size + numbers_max * NUMBER_BYTES_MAX;
    if (size_max > (Py_ssize_t)sizeof few && !(begin = PyMem_Malloc(size_max)))
        return PyErr_NoMemory();
    uint8_t *at = begin + prefix_size;
    PyObject *made = NULL;
    memcpy(begin, PyBytes_AS_STRING(prefix), prefix_size);
    for (Py_ssize_t index = 0; index < fields; index++) {
        int64_t number;
        if (index != batches_at) {
            if (!read_number(PyTuple_GET_ITEM(value, index), &number))
                goto done;
            at = put_number(at, number);
            continue;
        }
        if (count)
            at = put_number(at, count);
        for (Py_ssize_t place = 0; place < count; place++) {
            if (packed) {
                const Batch *batch = &packed->batches[place];
                at = put_number(put_number(put_number(put_number(at, batch->first), batch->last), batch->state), batch->count);
                continue;
            }
            PyObject *batch = PyTuple_GET_ITEM(batches, place);
            if (!is_batch(batch))
                goto done;
            for (Py_ssize_t field = 0; field < BATCH_FIELDS; field++) {
                if (!read_number(PyTuple_GET_ITEM(batch, field), &number))
                    goto done;
                at = put_number(at, number);
            }
        }
        at = put_number(at, 0);
    }
    made = PyBytes_FromStringAndSize((char *)begin, at - begin);
done:
    if (begin != few)
        PyMem_Free(begin);
    return made;
}

static PyObject *encode_value(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "encode_value takes a value, where its batches are, and a prefix");
    Py_ssize_t batches_at = PyLong_AsSsize_t(args[1]);
    if (batches_at < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "batches_at is negative");
    return encode_fields(args[0], batches_at, args[2]);
}

/* Decode a value of so many numbers, batches, and so many numbers; None where it is not written as `encode_value` does. */
static PyObject *decode_fields(PyTypeObject *type, const uint8_t *at, const uint8_t *end, Py_ssize_t before, Py_ssize_t behind)
{
    int64_t numbers[16], count;
    for (Py_ssize_t index = 0; index < before; index++)
        if (!at || !(at = take_number(at, end, &numbers[index])))
            Py_RETURN_NONE;
    if (!(at = take_number(at, end, &count)) || count < 0 || count > (end - at) / BATCH_FIELDS)
        Py_RETURN_NONE;
    PyObject *batches = count ? (PyObject *)new_packed((Py_ssize_t)count) : Py_NewRef(nothing);
    if (!batches)
        return NULL;
    Batch *items = ((Packed *)batches)->batches;
    for (Py_ssize_t index = 0; index < count; index++)
        if (!(at = take_batch(at, end, &items[index])))
            goto unusual;
    if (!is_settled(items, (Py_ssize_t)count))
        goto unusual;
    int64_t ended = 0;
    if (count && (!(at = take_number(at, end, &ended)) || ended))
        goto unusual;
    for (Py_ssize_t index = 0; index < behind; index++)
        if (!(at = take_number(at, end, &numbers[before + index])))
            goto unusual;
    if (at != end)
        goto unusual;
    PyObject *made = new_tuple(type, before + 1 + behind);
    if (!made) {
        Py_DECREF(batches);
        return NULL;
    }
    PyTuple_SET_ITEM(made, before, batches);
    for (Py_ssize_t index = 0; index < before + behind; index++) {
        /* What was written when it was created has one number for both. */
        if (index && index < before && numbers[index] == numbers[index - 1])
            PyTuple_SET_ITEM(made, index, Py_NewRef(PyTuple_GET_ITEM(made, index - 1)));
        else if (!set_number(made, index < before ? index : index + 1, numbers[index])) {
            Py_DECREF(made);
            return NULL;
        }
    }
    return made;
unusual:
    Py_DECREF(batches);
    Py_RETURN_NONE;
}

static PyObject *decode_value(PyObject *const *args, Py_ssize_t count, PyTypeObject *type, Py_ssize_t before, Py_ssize_t behind)
{
    if (count != 2 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "takes bytes and where their numbers begin");
    Py_ssize_t from = PyLong_AsSsize_t(args[1]), size = PyBytes_GET_SIZE(args[0]);
    if (from < 0 || from > size)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the numbers begin outside of the bytes");
    const uint8_t *begin = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    return decode_fields(type, begin + from, begin + size, before, behind);
}

static PyObject *decode_update(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return decode_value(args, count, update_type, 4, 0);
}

static PyObject *decode_snapshot(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    return decode_value(args, count, snapshot_type, 7, 2);
}

/* ---- batches in Kafka's form ------------------------------------------------------------------------------------- */

static uint8_t *put_big_endian(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes--)
        *at++ = (uint8_t)(number >> 8 * bytes);
    return at;
}

static uint64_t take_big_endian(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    while (bytes--)
        number = number << 8 | *at++;
    return number;
}

static PyObject *encode_batches(PyObject *module, PyObject *held)
{
    Py_ssize_t size = count_batches(held);
    if (size < 0)
        Py_RETURN_NONE;
    PyObject *packed = pack_numbers(held);
    if (!packed || packed == Py_None)
        return packed;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size * KAFKA_BATCH_SIZE);
    uint8_t *at = made ? (uint8_t *)PyBytes_AS_STRING(made) : NULL;
    for (Py_ssize_t index = 0; made && index < size; index++) {
        const Batch *batch = &((Packed *)packed)->batches[index];
        if (batch->state != (int8_t)batch->state || batch->count != (int16_t)batch->count) {
            Py_SETREF(made, Py_NewRef(Py_None));
            break;
        }
        at = put_big_endian(put_big_endian(at, batch->first, 8), batch->last, 8);
        at = put_big_endian(put_big_endian(put_big_endian(at, batch->state, 1), batch->count, 2), 0, 1);
    }
    Py_DECREF(packed);
    return made;
}

static PyObject *decode_batches(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    Py_buffer data;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "decode_batches takes bytes, where the batches begin, and how many there are");
    Py_ssize_t begin = PyLong_AsSsize_t(args[1]), size = begin == -1 && PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *made = NULL;
    if (begin < 0 || begin > data.len || size < 0 || size > (data.len - begin) / KAFKA_BATCH_SIZE) {
        PyErr_Format(PyExc_ValueError, "the batches lie outside of the bytes");
        goto done;
    }
    Packed *packed = size ? new_packed(size) : (Packed *)Py_NewRef(nothing);
    if (!(made = (PyObject *)packed))
        goto done;
    const uint8_t *at = (const uint8_t *)data.buf + begin;
    uint8_t tags = 0;
    for (Py_ssize_t index = 0; index < size; index++, at += KAFKA_BATCH_SIZE) {
        packed->batches[index] = (Batch){(int64_t)take_big_endian(at, 8), (int64_t)take_big_endian(at + 8, 8), (int8_t)at[16],
                                         (int16_t)take_big_endian(at + 17, 2)};
        tags |= at[19];
    }
    if (tags || !is_settled(packed->batches, size))
        Py_SETREF(made, Py_NewRef(Py_None));
done:
    PyBuffer_Release(&data);
    return made;
}

/* ---- combining --------------------------------------------------------------------------------------------------- */

static int is_before(const Batch *one, const Batch *other)
{
    if (one->first != other->first)
        return one->first < other->first;
    if (one->last != other->last)
        return one->last < other->last;
    return one->count != other->count ? one->count < other->count : one->state < other->state;
}

static int outranks(const Batch *one, const Batch *other)
{
    return one->count != other->count ? one->count > other->count : one->state > other->state;
}

/* Tell whether a batch covers offsets, none of which is at an end of what 64 bits hold; others are kept or vanish by rules of their own. */
static int is_plain(const Batch *batch)
{
    return batch->first >= 0 && batch->first <= batch->last && batch->last < INT64_MAX;
}

/* Put a batch where it belongs among those that wait, which are in descending order, so that the next one is the last. */
static void insert(Batch *waiting, Py_ssize_t size, Batch batch)
{
    Py_ssize_t at = size;
    while (at && is_before(&waiting[at - 1], &batch)) {
        waiting[at] = waiting[at - 1];
        at--;
    }
    waiting[at] = batch;
}

/* Bring batches into the shape that the head of `combining.py` describes; returns how many there are then, -1 for too many steps. */
static Py_ssize_t settle(const Batch *batches, Py_ssize_t size, Batch *final, Py_ssize_t final_max)
{
    Batch waiting[2 * BATCHES_MAX];
    Py_ssize_t left = 0, made = 0;
    /* Every step takes one of the waiting or puts one back; so many are allowed that usual cases never end here. */
    Py_ssize_t steps_left = 8 * size + 8;
    for (Py_ssize_t index = 0; index < size; index++)
        if (batches[index].first <= batches[index].last)
            insert(waiting, left++, batches[index]);
    if (!left)
        return 0;
    Batch lowest = waiting[--left];
    while (left) {
        Batch next = waiting[left - 1];
        int same = is_same(&next, &lowest);
        if (!steps_left-- || made + 2 > final_max)
            return -1;
        left--;
        /* Behind it, without a gap if it is the same; the last offset there is has none behind. */
        if (next.first > lowest.last && (!same || next.first - 1 > lowest.last)) {
            final[made++] = lowest;
            lowest = next;
        } else if (same) {
            if (next.last > lowest.last)
                lowest.last = next.last;
        } else if (outranks(&lowest, &next)) {
            if (next.last > lowest.last) {
                next.first = lowest.last + 1;
                insert(waiting, left++, next);
            }
        } else {
            if (next.first > lowest.first)
                final[made++] = (Batch){lowest.first, next.first - 1, lowest.state, lowest.count};
            if (lowest.last > next.last)
                insert(waiting, left++, (Batch){next.last + 1, lowest.last, lowest.state, lowest.count});
            lowest = next;
        }
    }
    final[made++] = lowest;
    return made;
}

/* Find which offsets the batches of a write cover at or above the start offset; returns how many do, -1 for an unusual case. */
static Py_ssize_t find_span(const Batch *incoming, Py_ssize_t coming, int64_t start, int64_t *first, int64_t *last)
{
    Py_ssize_t count = 0;
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (Py_ssize_t index = 0; index < coming; index++) {
        const Batch *each = &incoming[index];
        if (!is_plain(each))
            return -1;
        if (start != -1 && each->last < start)
            continue;
        int64_t begins = start != -1 && each->first < start ? start : each->first;
        *first = begins < *first ? begins : *first;
        *last = each->last > *last ? each->last : *last;
        count++;
    }
    return count;
}

/* The first place whose last offset is not below an offset. */
static Py_ssize_t find_first(const Batch *batches, Py_ssize_t size, int64_t offset)
{
    Py_ssize_t low = 0, high = size;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (batches[middle].last < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What a write makes of settled batches: those before `low` go, those from `from` up to `high` give way to `size` others. */
typedef struct {
    Py_ssize_t low, from, high, size;
    const Batch *found;
    Batch middle[BATCHES_MAX], final[2 * BATCHES_MAX];
} Splice;

/* Find what a write makes of settled batches, as `combine` does; returns how many there are then, -1 for an unusual case. */
static Py_ssize_t find_splice(const Batch *current, Py_ssize_t kept, const Batch *incoming, Py_ssize_t coming, int64_t start,
                              Splice *splice)
{
    Batch *middle = splice->middle;
    Py_ssize_t size = 0, high;
    int64_t first, last;
    Py_ssize_t counting = find_span(incoming, coming, start, &first, &last);
    if (counting < 0)
        return -1;
    Py_ssize_t low = start == -1 ? 0 : find_first(current, kept, start);
    /* The one that the start offset cuts is the first of those that are kept. */
    int is_cut = start != -1 && low < kept && current[low].first < start;
    /* What the incoming ones neither overlap nor touch stays what it is. */
    Py_ssize_t from = counting && !is_cut ? find_first(current, kept, first - 1) : low;
    if (from < low)
        from = low;
    for (high = from; high < kept; high++) {
        if (!(is_cut && high == low) && (!counting || current[high].first > last + 1))
            break;
        if (size == BATCHES_MAX)
            return -1;
        middle[size] = current[high];
        if (is_cut && high == low)
            middle[size].first = start;
        size++;
    }
    for (Py_ssize_t index = 0; index < coming; index++) {
        if (start != -1 && incoming[index].last < start)
            continue;
        if (size == BATCHES_MAX)
            return -1;
        middle[size] = incoming[index];
        if (start != -1 && middle[size].first < start)
            middle[size].first = start;
        size++;
    }
    splice->found = middle;
    if (!is_settled(middle, size)) {
        splice->found = splice->final;
        if ((size = settle(middle, size, splice->final, 2 * BATCHES_MAX)) < 0 || !is_settled(splice->final, size))
            return -1;
    }
    splice->low = low;
    splice->from = from;
    splice->high = high;
    splice->size = size;
    return from - low + size + kept - high;
}

/* Write down what `find_splice` found, where there is room for it. */
static void write_splice(const Batch *current, Py_ssize_t kept, const Splice *splice, Batch *combined)
{
    Py_ssize_t before = splice->from - splice->low;
    memcpy(combined, &current[splice->low], before * sizeof(Batch));
    memcpy(&combined[before], splice->found, splice->size * sizeof(Batch));
    memcpy(&combined[before + splice->size], &current[splice->high], (kept - splice->high) * sizeof(Batch));
}

/* Return what a write makes of settled batches; None for an unusual case. */
static PyObject *combine_held(PyObject *held, PyObject *incoming, int64_t start)
{
    Py_ssize_t coming = count_batches(incoming), kept = count_batches(held);
    Batch given[BATCHES_MAX / 4];
    Splice splice;
    /* Whether an empty tuple is settled is no question. */
    if (coming < 0 || coming > BATCHES_MAX / 4 || kept < 0 || (kept && !Py_IS_TYPE(held, &packed_type)))
        Py_RETURN_NONE;
    int are_usual = copy_batches(incoming, given);
    if (are_usual < 0)
        return NULL;
    const Batch *current = ((Packed *)(kept ? held : nothing))->batches;
    Py_ssize_t size = are_usual ? find_splice(current, kept, given, coming, start, &splice) : -1;
    if (size < 0)
        Py_RETURN_NONE;
    if (!size)
        return Py_NewRef(nothing);
    if (!splice.low && !splice.size && splice.from == splice.high)
        return Py_NewRef(held);
    Packed *combined = new_packed(size);
    if (combined)
        write_splice(current, kept, &splice, combined->batches);
    return (PyObject *)combined;
}

static PyObject *combine(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t start;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "combine takes batches, batches, and a start offset");
    return read_number(args[2], &start) ? combine_held(args[0], args[1], start) : leave_overflow();
}

/* ---- deliveries -------------------------------------------------------------------------------------------------- */

#define ACKNOWLEDGED 2
#define ARCHIVED 4
#define DELIVERY_COUNT_TOP 10

static PyObject *sum_up_deliveries(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t start;
    if (arguments != 2)
        return PyErr_Format(PyExc_TypeError, "sum_up_deliveries takes a start offset and batches");
    if (!read_number(args[0], &start))
        return leave_overflow();
    const Packed *packed = (Packed *)args[1];
    Py_ssize_t size = Py_IS_TYPE(args[1], &packed_type) ? Py_SIZE(packed) : -1;
    if (size < 0 || (size && (!is_plain(&packed->batches[0]) || !is_plain(&packed->batches[size - 1]))))
        Py_RETURN_NONE;
    int64_t begin = start, next = start, oldest = -1, finished = 0, archived = 0, counts[DELIVERY_COUNT_TOP + 1] = {0};
    int32_t count_max = 0;
    for (Py_ssize_t index = 0; index < size; index++) {
        const Batch *each = &packed->batches[index];
        if (next < 0)
            begin = next = each->first;
        if (each->last < next)
            continue;
        if (each->first > next && oldest < 0)
            oldest = next;
        int64_t first = each->first > next ? each->first : next, offsets = each->last - first + 1;
        if (each->state == ACKNOWLEDGED || each->state == ARCHIVED) {
            finished += offsets;
            archived += each->state == ARCHIVED ? offsets : 0;
        } else if (each->count < 0) {
            Py_RETURN_NONE;
        } else {
            oldest = oldest < 0 ? first : oldest;
            count_max = each->count > count_max ? each->count : count_max;
            counts[each->count < DELIVERY_COUNT_TOP ? each->count : DELIVERY_COUNT_TOP] += offsets;
        }
        next = each->last + 1;
    }
    Py_ssize_t shown = 0, at = 0;
    for (int count = 0; count <= DELIVERY_COUNT_TOP; count++)
        shown += counts[count] != 0;
    PyObject *by_count = PyTuple_New(shown);
    for (int count = 0; by_count && count <= DELIVERY_COUNT_TOP; count++) {
        if (!counts[count])
            continue;
        PyObject *pair = Py_BuildValue("(iL)", count, (long long)counts[count]);
        if (!pair)
            Py_CLEAR(by_count);
        else
            PyTuple_SET_ITEM(by_count, at++, pair);
    }
    if (!by_count)
        return NULL;
    return Py_BuildValue("(LLLLiNL)", (long long)finished, (long long)(next - begin - finished),
                         (long long)(oldest < 0 ? next : oldest), (long long)next, (int)count_max, by_count, (long long)archived);
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

/* The fields of a state, in its order. */
enum { SNAPSHOT_EPOCH, STATE_EPOCH, LEADER_EPOCH, START_OFFSET, COMPLETE_COUNT, CREATED_MS, WRITTEN_MS, BATCHES, LEADER_FENCE,
       STATE_FENCE, UPDATE_COUNT };
/* And those of an update. */
enum { NEW_LEADER_EPOCH = 1, NEW_START_OFFSET, NEW_COMPLETE_COUNT, NEW_BATCHES };

static int is_state(PyObject *object)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == STATE_FIELDS && is_tuple_type(Py_TYPE(object));
}

static PyObject *replay_update(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    if (arguments != 2 || !is_state(args[0]) || !Py_IS_TYPE(args[1], update_type) || PyTuple_GET_SIZE(args[1]) != NEW_BATCHES + 1)
        return PyErr_Format(PyExc_TypeError, "replay_update takes a state and an update");
    PyObject *state = args[0], *update = args[1], *fields[STATE_FIELDS];
    int64_t leader_epoch, fence, start, count;
    if (!read_number(PyTuple_GET_ITEM(update, NEW_LEADER_EPOCH), &leader_epoch) ||
        !read_number(PyTuple_GET_ITEM(update, NEW_START_OFFSET), &start) ||
        !read_number(PyTuple_GET_ITEM(state, LEADER_FENCE), &fence) || !read_number(PyTuple_GET_ITEM(state, UPDATE_COUNT), &count))
        return leave_overflow();
    for (Py_ssize_t index = 0; index < STATE_FIELDS; index++)
        fields[index] = PyTuple_GET_ITEM(state, index);
    if (leader_epoch != -1)
        fields[LEADER_EPOCH] = PyTuple_GET_ITEM(update, NEW_LEADER_EPOCH);
    if (leader_epoch > fence && leader_epoch != -1)
        fields[LEADER_FENCE] = fields[LEADER_EPOCH];
    if (start != -1)
        fields[START_OFFSET] = PyTuple_GET_ITEM(update, NEW_START_OFFSET);
    else if (!read_number(fields[START_OFFSET], &start))
        return leave_overflow();
    fields[COMPLETE_COUNT] = PyTuple_GET_ITEM(update, NEW_COMPLETE_COUNT);
    PyObject *batches = combine_held(fields[BATCHES], PyTuple_GET_ITEM(update, NEW_BATCHES), start);
    if (!batches || batches == Py_None)
        return batches;
    PyObject *made = count < INT64_MAX ? new_tuple(Py_TYPE(state), STATE_FIELDS) : Py_NewRef(Py_None);
    if (!made || made == Py_None) {
        Py_DECREF(batches);
        return made;
    }
    for (Py_ssize_t index = 0; index < UPDATE_COUNT; index++)
        PyTuple_SET_ITEM(made, index, index == BATCHES ? batches : Py_NewRef(fields[index]));
    if (!set_number(made, UPDATE_COUNT, count + 1))
        Py_CLEAR(made);
    return made;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

/* So many records ahead, what one consists of is fetched into the processor's cache: they lie where they came in the log. */
#define AHEAD 8

/* Read the update that a value holds into the numbers before its batches, and these; how many they are, -1 for an unusual value. */
static Py_ssize_t read_update(PyObject *value, PyObject *prefix, int64_t *numbers, Batch *batches)
{
    Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix);
    if (PyBytes_GET_SIZE(value) < prefix_size || memcmp(PyBytes_AS_STRING(value), PyBytes_AS_STRING(prefix), prefix_size))
        return -1;
    const uint8_t *begin = (const uint8_t *)PyBytes_AS_STRING(value), *at = begin + prefix_size, *end = begin + PyBytes_GET_SIZE(value);
    int64_t count, ended = 0;
    for (int index = 0; index < 4; index++)
        if (!(at = take_number(at, end, &numbers[index])))
            return -1;
    if (!(at = take_number(at, end, &count)) || count < 0 || count > BATCHES_MAX / 4)
        return -1;
    for (Py_ssize_t index = 0; index < count; index++)
        if (!(at = take_batch(at, end, &batches[index])))
            return -1;
    if (count && (!(at = take_number(at, end, &ended)) || ended))
        return -1;
    return at == end ? (Py_ssize_t)count : -1;
}

static PyObject *make_state(PyObject *before, const int64_t *numbers, const Batch *batches, Py_ssize_t size)
{
    PyObject *state = new_tuple(Py_TYPE(before), STATE_FIELDS), *packed = pack_array(batches, size);
    if (!state || !packed)
        goto failed;
    for (Py_ssize_t index = 0; index < STATE_FIELDS; index++) {
        if (index == BATCHES)
            continue;
        int64_t was = -1;
        PyObject *number = PyTuple_GET_ITEM(before, index);
        if (!read_number(number, &was))
            goto failed;
        if (was == numbers[index]) {
            Py_INCREF(number);
            PyTuple_SET_ITEM(state, index, number);
        } else if (!set_number(state, index, numbers[index]))
            goto failed;
    }
    PyTuple_SET_ITEM(state, BATCHES, packed);
    return state;
failed:
    Py_XDECREF(state);
    Py_XDECREF(packed);
    return NULL;
}

static PyObject *fold_updates(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    if (arguments != 5 || !is_state(args[0]) || !PyList_Check(args[1]) || !PyBytes_Check(args[3]) || !PyBytes_Check(args[4]))
        return PyErr_Format(PyExc_TypeError, "fold_updates takes a state, records, a place, and two prefixes");
    PyObject *state = args[0], *records = args[1], *key_prefix = args[3], *value_prefix = args[4];
    Py_ssize_t at = PyLong_AsSsize_t(args[2]), begin = at, count = PyList_GET_SIZE(records);
    if (at < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the place is negative");
    PyObject *held = PyTuple_GET_ITEM(state, BATCHES);
    int64_t numbers[STATE_FIELDS] = {0}, given[4];
    Batch held_now[BATCHES_MAX], held_next[BATCHES_MAX], *current = held_now, *combined = held_next, incoming[BATCHES_MAX / 4];
    Splice splice;
    Py_ssize_t size = count_batches(held);
    if (size < 0 || size > BATCHES_MAX)
        return Py_BuildValue("(On)", state, at);
    int are_usual = copy_batches(held, current);
    if (are_usual < 0)
        return NULL;
    for (Py_ssize_t index = 0; index < STATE_FIELDS; index++)
        if (index != BATCHES && !read_number(PyTuple_GET_ITEM(state, index), &numbers[index]))
            return NULL;
    if (!are_usual || !is_settled(current, size) || (size && current[size - 1].last == INT64_MAX))
        return Py_BuildValue("(On)", state, at);
    for (; at < count; at++) {
        if (at + 2 * AHEAD < count)
            __builtin_prefetch(PyList_GET_ITEM(records, at + 2 * AHEAD));
        if (at + AHEAD < count && PyTuple_Check(PyList_GET_ITEM(records, at + AHEAD)) &&
            PyTuple_GET_SIZE(PyList_GET_ITEM(records, at + AHEAD)) == 3)
            __builtin_prefetch(PyTuple_GET_ITEM(PyList_GET_ITEM(records, at + AHEAD), 1));
        PyObject *record = PyList_GET_ITEM(records, at);
        if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) != 3)
            break;
        PyObject *key = PyTuple_GET_ITEM(record, 0), *value = PyTuple_GET_ITEM(record, 1);
        Py_ssize_t key_prefix_size = PyBytes_GET_SIZE(key_prefix);
        if (!PyBytes_Check(key) || !PyBytes_Check(value) || PyBytes_GET_SIZE(key) < key_prefix_size ||
            memcmp(PyBytes_AS_STRING(key), PyBytes_AS_STRING(key_prefix), key_prefix_size))
            break;
        Py_ssize_t coming = read_update(value, value_prefix, given, incoming);
        if (coming < 0)
            break;
        int64_t start = given[2] == -1 ? numbers[START_OFFSET] : given[2];
        Py_ssize_t made = find_splice(current, size, incoming, coming, start, &splice);
        if (made < 0 || made > BATCHES_MAX)
            break;
        write_splice(current, size, &splice, combined);
        Batch *before = current;
        current = combined;
        combined = before;
        size = made;
        if (given[1] != -1) {
            numbers[LEADER_EPOCH] = given[1];
            if (given[1] > numbers[LEADER_FENCE])
                numbers[LEADER_FENCE] = given[1];
        }
        numbers[START_OFFSET] = start;
        numbers[COMPLETE_COUNT] = given[3];
        numbers[UPDATE_COUNT]++;
    }
    if (at == begin)
        return Py_BuildValue("(On)", state, at);
    PyObject *made = make_state(state, numbers, current, size);
    return made ? Py_BuildValue("(Nn)", made, at) : NULL;
}

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

static PyObject *decode_records(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
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

/* ---- the module -------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"untrack", untrack, METH_O, NULL},
    {"untrack_map", untrack_map, METH_O, NULL},
    {"encode_value", (PyCFunction)(void (*)(void))encode_value, METH_FASTCALL, NULL},
    {"decode_update", (PyCFunction)(void (*)(void))decode_update, METH_FASTCALL, NULL},
    {"decode_snapshot", (PyCFunction)(void (*)(void))decode_snapshot, METH_FASTCALL, NULL},
    {"pack", pack, METH_O, NULL},
    {"encode_batches", encode_batches, METH_O, NULL},
    {"decode_batches", (PyCFunction)(void (*)(void))decode_batches, METH_FASTCALL, NULL},
    {"combine", (PyCFunction)(void (*)(void))combine, METH_FASTCALL, NULL},
    {"sum_up_deliveries", (PyCFunction)(void (*)(void))sum_up_deliveries, METH_FASTCALL, NULL},
    {"replay_update", (PyCFunction)(void (*)(void))replay_update, METH_FASTCALL, NULL},
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL, NULL},
    {"fold_updates", (PyCFunction)(void (*)(void))fold_updates, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *find_type(const char *module, const char *name)
{
    PyObject *found = PyImport_ImportModule(module), *type = found ? PyObject_GetAttrString(found, name) : NULL;
    Py_XDECREF(found);
    if (type && !(PyType_Check(type) && is_tuple_type((PyTypeObject *)type))) {
        PyErr_Format(PyExc_TypeError, "%s is no tuple", name);
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_native(void)
{
    if (!(state_batch_type = find_type("holdfast.records.batches", "StateBatch")) ||
        !(settled_type = find_type("holdfast.records.batches", "SettledBatches")) ||
        !(update_type = find_type("holdfast.records.values", "Update")) ||
        !(snapshot_type = find_type("holdfast.records.values", "Snapshot")))
        return NULL;
    if (PyType_Ready(&packed_type) < 0 || PyType_Ready(&packed_iterator_type) < 0 || !(nothing = (PyObject *)new_packed(0)))
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddObjectRef(module, "PackedBatches", (PyObject *)&packed_type) < 0)
        Py_CLEAR(module);
    return module;
}
