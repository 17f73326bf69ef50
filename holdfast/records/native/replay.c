/* What an update, or a run of them, makes of a state. */

#include "native.h"

#define STATE_FIELDS 11

/* The fields of a state, in its order. */
enum { SNAPSHOT_EPOCH, STATE_EPOCH, LEADER_EPOCH, START_OFFSET, COMPLETE_COUNT, CREATED_MS, WRITTEN_MS, BATCHES, LEADER_FENCE,
       STATE_FENCE, UPDATE_COUNT };
/* And those of an update. */
enum { NEW_LEADER_EPOCH = 1, NEW_START_OFFSET, NEW_COMPLETE_COUNT, NEW_BATCHES };

static int is_state(PyObject *object)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == STATE_FIELDS && is_tuple_type((PyObject *)Py_TYPE(object));
}

PyObject *replay_update(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
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

PyObject *fold_updates(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
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
        if (index != BATCHES && !read_number(PyTuple_GET_ITEM(state, index), &numbers[index])) {
            if (!PyErr_ExceptionMatches(PyExc_OverflowError))
                return NULL;
            PyErr_Clear();
            are_usual = 0;
        }
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
        /* One more than the largest number is for Python to count. */
        if (coming < 0 || numbers[UPDATE_COUNT] == INT64_MAX)
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
