/* What the batches of a state add up to. */

#include "native.h"

#define DELIVERY_COUNT_TOP 10

PyObject *sum_up_deliveries(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
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
