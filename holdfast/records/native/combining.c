/* What a write makes of the batches of a state. */

#include "native.h"

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

/* Put a final batch after the others, or join it with the last of them; returns how many there are then. */
static Py_ssize_t put_final(Batch *final, Py_ssize_t made, Batch batch)
{
    if (made && is_same(&final[made - 1], &batch) && final[made - 1].last == batch.first - 1) {
        final[made - 1].last = batch.last;
        return made;
    }
    final[made] = batch;
    return made + 1;
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
            made = put_final(final, made, lowest);
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
                made = put_final(final, made, (Batch){lowest.first, next.first - 1, lowest.state, lowest.count});
            if (lowest.last > next.last)
                insert(waiting, left++, (Batch){next.last + 1, lowest.last, lowest.state, lowest.count});
            lowest = next;
        }
    }
    return put_final(final, made, lowest);
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

Py_ssize_t find_splice(const Batch *current, Py_ssize_t kept, const Batch *incoming, Py_ssize_t coming, int64_t start,
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
        if ((size = settle(middle, size, splice->final, 2 * BATCHES_MAX)) < 0)
            return -1;
    }
    splice->low = low;
    splice->from = from;
    splice->high = high;
    splice->size = size;
    return from - low + size + kept - high;
}

void write_splice(const Batch *current, Py_ssize_t kept, const Splice *splice, Batch *combined)
{
    Py_ssize_t before = splice->from - splice->low;
    memcpy(combined, &current[splice->low], before * sizeof(Batch));
    memcpy(&combined[before], splice->found, splice->size * sizeof(Batch));
    memcpy(&combined[before + splice->size], &current[splice->high], (kept - splice->high) * sizeof(Batch));
}

PyObject *combine_held(PyObject *held, PyObject *incoming, int64_t start)
{
    Py_ssize_t coming = count_batches(incoming), kept = count_batches(held);
    Batch given[BATCHES_MAX / 4];
    Splice splice;
    /* Whether an empty tuple is settled is no question. */
    if (coming < 0 || kept < 0 || (kept && !Py_IS_TYPE(held, &packed_type)))
        Py_RETURN_NONE;
    if (!kept && coming && Py_IS_TYPE(incoming, &packed_type)) {
        const Batch *batches = ((Packed *)incoming)->batches;
        /* They are settled, and nothing of them is cut. */
        if (batches->first >= 0 && batches->first >= start && batches[coming - 1].last < INT64_MAX)
            return Py_NewRef(incoming);
    }
    if (coming > BATCHES_MAX / 4)
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

PyObject *combine(PyObject *module, PyObject *const *args, Py_ssize_t arguments)
{
    int64_t start;
    if (arguments != 3)
        return PyErr_Format(PyExc_TypeError, "combine takes batches, batches, and a start offset");
    return read_number(args[2], &start) ? combine_held(args[0], args[1], start) : leave_overflow();
}
