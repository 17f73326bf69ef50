/* The module: its functions, and the types of Python's that they make instances of.

   Batches and values hold numbers and each other only, so they cannot be part of a cycle, and the collector is told not to look.
   Requests, and what a maker makes, it looks through like any other. */

#include "native.h"

PyTypeObject *state_batch_type, *settled_type, *update_type, *snapshot_type;

#define MANY(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
#define ONE(name) {#name, name, METH_O, NULL}

static PyMethodDef functions[] = {
    ONE(untrack),
    ONE(untrack_map),
    ONE(maker),
    MANY(encode_value),
    MANY(decode_update),
    MANY(decode_snapshot),
    ONE(pack),
    ONE(are_well_formed),
    ONE(encode_batches),
    ONE(encode_outcomes),
    ONE(encode_states),
    MANY(decode_batches),
    MANY(decode_request),
    MANY(combine),
    MANY(replay_update),
    MANY(decode_records),
    MANY(encode_header),
    MANY(encode_records),
    MANY(fold_updates),
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *find_type(const char *module, const char *name)
{
    PyObject *found = PyImport_ImportModule(module), *type = found ? PyObject_GetAttrString(found, name) : NULL;
    Py_XDECREF(found);
    if (type && !is_tuple_type(type)) {
        PyErr_Format(PyExc_TypeError, "%s is no tuple", name);
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twins", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_twins(void)
{
    if (!(state_batch_type = find_type("holdfast.records.share.batches", "StateBatch")) ||
        !(settled_type = find_type("holdfast.records.share.batches", "SettledBatches")) ||
        !(update_type = find_type("holdfast.records.share.values", "Update")) ||
        !(snapshot_type = find_type("holdfast.records.share.values", "Snapshot")) || prepare_packed() < 0 ||
        PyType_Ready(&maker_type) < 0)
        return NULL;
    prepare_crc32c();
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddObjectRef(module, "PackedBatches", (PyObject *)&packed_type) < 0)
        Py_CLEAR(module);
    return module;
}
