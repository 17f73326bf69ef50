/* What the files of this extension know of each other; `twins.pyi` says what each function takes and gives.

   Each function is the twin of one in Python and answers the same; where a case is unusual it answers None, and the caller goes
   the way in Python. `tests/pure/records/test_native.py` and its like compare them case by case.

   What a loop calls for each number is defined here, as far as it is short, for each file to have it in line. */

#ifndef HOLDFAST_NATIVE_H
#define HOLDFAST_NATIVE_H

#include "../../kafka/protocol/native/numbers_and_tuples.h"
#include <stddef.h>
#include <string.h>

/* At most so many batches are combined here; more of them are seldom, and go the way in Python. */
#define BATCHES_MAX 64
/* A 64-bit zigzag number as a varint. */
#define NUMBER_BYTES_MAX 10
/* Longer varints are left to fastavro, as `numbers.decode_numbers` does. */
#define NUMBER_BITS_MAX 56
#define BATCH_FIELDS 4
#define TOPIC_ID_SIZE 16
/* Delivery states that are persisted, as in `batches`. */
#define AVAILABLE 0
#define ACKNOWLEDGED 2
#define ARCHIVING 3
#define ARCHIVED 4

/* A function of the module that takes a single argument, and one that takes several. */
typedef PyObject *TakesOne(PyObject *module, PyObject *argument);
typedef PyObject *TakesMany(PyObject *module, PyObject *const *args, Py_ssize_t arguments);

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

/* ---- twins.c: the types of Python's that are made here ------------------------------------------------------------ */

extern PyTypeObject *state_batch_type, *settled_type, *update_type, *snapshot_type;

/* ---- tuples.c ---------------------------------------------------------------------------------------------------- */

PyObject *make_batch(const Batch *batch);
/* Tell whether something is a number; an exception is set where it is none. */
int is_number(PyObject *object);
/* Leave what is too large to Python. */
PyObject *leave_overflow(void);
/* Tell whether something is a batch; an exception is set where it is none. */
int is_batch(PyObject *object);
/* What makes instances of a subclass of tuple. */
extern PyTypeObject maker_type;
TakesOne untrack, untrack_map, maker;

/* Set a field to a number; false where there is no memory. */
static inline int set_number(PyObject *tuple, Py_ssize_t index, int64_t number)
{
    PyObject *made = PyLong_FromLongLong(number);
    PyTuple_SET_ITEM(tuple, index, made);
    return made != NULL;
}

/* Read a number; false where it is none, or too large, with an exception set. */
static inline int read_number(PyObject *object, int64_t *number)
{
    if (!is_number(object))
        return 0;
    *number = PyLong_AsLongLong(object);
    return *number != -1 || !PyErr_Occurred();
}

/* Set a batch to four numbers; false where its state or its count is beyond all that a log has, which is left to Python. */
static inline int set_batch(Batch *batch, const int64_t *numbers)
{
    *batch = (Batch){numbers[0], numbers[1], (int32_t)numbers[2], (int32_t)numbers[3]};
    return batch->state == numbers[2] && batch->count == numbers[3];
}

/* ---- packed_batches.c -------------------------------------------------------------------------------------------- */

extern PyTypeObject packed_type;
/* Packed batches of which there are none. */
extern PyObject *nothing;

/* Make what this file has ready; -1 with an exception set. */
int prepare_packed(void);
/* Tell whether batches are ascending, free of overlaps and joined where they can be. */
int is_settled(const Batch *batches, Py_ssize_t size);
Packed *new_packed(Py_ssize_t size);
PyObject *pack_array(const Batch *batches, Py_ssize_t size);
/* The number of batches in what holds them, -1 where that is neither a tuple nor packed. */
Py_ssize_t count_batches(PyObject *held);
/* Copy batches to an array that has room for them; 0 where one is unusual, -1 with an exception set. */
int copy_batches(PyObject *held, Batch *batches);
/* Return batches side by side, settled or not; None where one is unusual. */
PyObject *pack_numbers(PyObject *held);
/* Return packed batches as a tuple. */
PyObject *unpack(PyObject *packed);
TakesOne pack, are_well_formed;

static inline int is_same(const Batch *one, const Batch *other)
{
    return one->count == other->count && one->state == other->state;
}

/* Tell whether a batch covers offsets, none of which is at an end of what 64 bits hold; others are kept or vanish by rules of their own. */
static inline int is_plain(const Batch *batch)
{
    return batch->first >= 0 && batch->first <= batch->last && batch->last < INT64_MAX;
}

/* ---- numbers as bytes -------------------------------------------------------------------------------------------- */

/* Put a number as a zigzag varint. */
static inline uint8_t *put_number(uint8_t *at, int64_t number)
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
static inline const uint8_t *take_number(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    return take_varint(at, end, NUMBER_BITS_MAX, number);
}

/* Take the next four numbers as a batch; NULL where they are cut short, very large or unusual. */
static inline const uint8_t *take_batch(const uint8_t *at, const uint8_t *end, Batch *batch)
{
    int64_t numbers[BATCH_FIELDS];
    for (Py_ssize_t index = 0; index < BATCH_FIELDS; index++)
        if (!(at = take_number(at, end, &numbers[index])))
            return NULL;
    return set_batch(batch, numbers) ? at : NULL;
}

/* ---- kafka_batches.c --------------------------------------------------------------------------------------------- */

/* Two offsets, a state of a byte, a count of two, and that there are no tags. */
#define KAFKA_BATCH_SIZE 20

/* Return so many batches side by side, settled or not; NULL without an exception where one has tags. */
PyObject *read_kafka_batches(const uint8_t *at, Py_ssize_t size);
/* Put batches in Kafka's form; NULL where a number is beyond its field. */
uint8_t *put_kafka_batches(uint8_t *at, const Batch *batches, Py_ssize_t size);
TakesOne encode_batches;
TakesMany decode_batches;

/* ---- values.c, requests.c, answers.c, record_batches.c --------------------------------------------------------- */

TakesOne encode_outcomes, encode_states;
TakesMany encode_value, decode_update, decode_snapshot, decode_request, decode_records, encode_header, encode_records;

/* ---- crc32c.c ---------------------------------------------------------------------------------------------------- */

void prepare_crc32c(void);
uint32_t compute_crc32c(const uint8_t *at, Py_ssize_t size);

/* ---- combining.c and replay.c ------------------------------------------------------------------------------------ */

/* What a write makes of settled batches: those before `low` go, those from `from` up to `high` give way to `size` others. */
typedef struct {
    Py_ssize_t low, from, high, size;
    const Batch *found;
    Batch middle[BATCHES_MAX], final[2 * BATCHES_MAX];
} Splice;

/* Find what a write makes of settled batches, as `combine` does; returns how many there are then, -1 for an unusual case. */
Py_ssize_t find_splice(const Batch *current, Py_ssize_t kept, const Batch *incoming, Py_ssize_t coming, int64_t start,
                       Splice *splice);
/* Write down what `find_splice` found, where there is room for it. */
void write_splice(const Batch *current, Py_ssize_t kept, const Splice *splice, Batch *combined);
/* Return what a write makes of settled batches; None for an unusual case. */
PyObject *combine_held(PyObject *held, PyObject *incoming, int64_t start);
TakesMany combine, replay_update, fold_updates;

#endif
