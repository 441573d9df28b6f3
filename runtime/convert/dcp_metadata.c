/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what .metadata says: the tensors, their chunks, and where these are. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/convert/dcp_internal.h"

#define METADATA "torch.distributed.checkpoint.metadata "
#define PLANNER "torch.distributed.checkpoint.planner "
#define MCORE "megatron.core.dist_checkpointing.strategies.torch "
#define SIZE_MOST ((uint64_t)1 << 48) /* numbers of a tensor */

typedef struct plait_pickle_value value_t;

/* What such a pickle is made of. Names of types without a use here are among
 * them, since optimizers and data loaders have tensors of all types. */
static const char *const known[] = {
    METADATA "Metadata",
    METADATA "TensorStorageMetadata",
    METADATA "BytesStorageMetadata",
    METADATA "TensorProperties",
    METADATA "ChunkStorageMetadata",
    METADATA "MetadataIndex",
    METADATA "StorageMeta",
    METADATA "_MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem _StorageInfo",
    PLANNER "SavePlan",
    PLANNER "WriteItem",
    PLANNER "WriteItemType",
    PLANNER "TensorWriteData",
    PLANNER "BytesIOWriteData",
    MCORE "MCoreSavePlan",
    MCORE "MCoreMetadata",
    "torch.serialization _get_layout",
    "torch Size",
    "torch strided",
    "torch float32",
    "torch bfloat16",
    "torch float16",
    "torch float64",
    "torch float8_e4m3fn",
    "torch float8_e5m2",
    "torch float8_e4m3fnuz",
    "torch float8_e5m2fnuz",
    "torch float8_e8m0fnu",
    "torch float4_e2m1fn_x2",
    "torch complex64",
    "torch complex128",
    "torch int64",
    "torch int32",
    "torch int16",
    "torch int8",
    "torch uint8",
    "torch uint16",
    "torch uint32",
    "torch uint64",
    "torch bool",
    "collections OrderedDict",
    "collections defaultdict",
    "pathlib PosixPath",
    "pathlib._local PosixPath",
    "pathlib WindowsPath",
    "pathlib._local WindowsPath",
    "builtins dict",
    "builtins list",
    "builtins set",
    "builtins getattr", /* an enumerator is taken by it from its class */
};

static bool is_of(const value_t *v, const char *class)
{
    return v && v->kind == PLAIT_PICKLE_OBJECT &&
           plait_pickle_is(v->callee, class);
}

int plait_dcp_wrong(const struct plait_dcp *dcp, const char *name,
                    const char *what, struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err, "%s/" PLAIT_DCP_METADATA ": tensor %.100s %s",
                        dcp->dir, name, what);
}

static int no_memory(const struct plait_dcp *dcp, struct plait_error *err)
{
    errno = ENOMEM;
    return plait_errorf(err, "%s: out of memory", dcp->dir);
}

/* -- names ---------------------------------------------------------------- */

/* Remove the modules that FSDP, checkpointing of activations and torch.compile
 * put around others. */
static void unwrap(char *name)
{
    static const char *const wraps[] = {
        "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."};
    char *at;

    for (size_t i = 0; i < sizeof(wraps) / sizeof(wraps[0]); i++)
        while ((at = strstr(name, wraps[i])))
            memmove(at, at + strlen(wraps[i]),
                    strlen(at + strlen(wraps[i])) + 1);
}

/* *name is malloc'ed; NULL: the key is no text. -1: no memory. */
static int name_of(const struct plait_dcp *dcp, const value_t *key, char **name,
                   struct plait_error *err)
{
    *name = NULL;
    if (!key || key->kind != PLAIT_PICKLE_TEXT || memchr(key->text, 0, key->n))
        return 0;
    *name = strndup(key->text, key->n);
    if (!*name)
        return no_memory(dcp, err);
    unwrap(*name);
    return 0;
}

/* -- a tensor ------------------------------------------------------------- */

/* A torch.Size, or a tuple. 1: it has more dimensions than are kept. */
static int read_size(const value_t *v, uint64_t to[PLAIT_DCP_DIMS_MOST],
                     int *ndim)
{
    if (is_of(v, "torch Size"))
        v = v->args && v->args->kind == PLAIT_PICKLE_LIST && v->args->n == 1
                ? v->args->items[0]
                : NULL;
    if (!v || v->kind != PLAIT_PICKLE_LIST)
        return -1;
    memset(to, 0, PLAIT_DCP_DIMS_MOST * sizeof(*to));
    if (v->n > PLAIT_DCP_DIMS_MOST)
        return 1;
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i]->kind != PLAIT_PICKLE_INT || v->items[i]->i < 0)
            return -1;
        to[i] = (uint64_t)v->items[i]->i;
    }
    *ndim = (int)v->n;
    return 0;
}

static void read_type(const value_t *properties, struct plait_dcp_tensor *t)
{
    static const char *const names[] = {"torch float32", "torch bfloat16",
                                        "torch float16"};
    static const enum plait_dtype types[] = {PLAIT_F32, PLAIT_BF16_T,
                                             PLAIT_FP16_T};
    const value_t *state = properties ? properties->state : NULL, *type;
    char shown[128];

    type = state && state->kind == PLAIT_PICKLE_LIST && state->n
               ? state->items[0]
               : plait_pickle_find(properties, "dtype");
    strcpy(t->type_name, "of an unknown type");
    if (!type || type->kind != PLAIT_PICKLE_NAME)
        return;
    plait_pickle_show(type, shown);
    snprintf(t->type_name, sizeof(t->type_name), "%.31s", shown);
    for (int i = 0; i < 3; i++)
        if (plait_pickle_is(type, names[i])) {
            t->type = types[i];
            t->supported = true;
        }
}

static int read_chunk(const struct plait_dcp *dcp, const value_t *v,
                      const struct plait_dcp_tensor *t,
                      struct plait_dcp_chunk *c, struct plait_error *err)
{
    int ndim[2] = {-1, -1};

    if (!is_of(v, METADATA "ChunkStorageMetadata") ||
        read_size(plait_pickle_find(v, "offsets"), c->begin, &ndim[0]) != 0 ||
        read_size(plait_pickle_find(v, "sizes"), c->size, &ndim[1]) != 0 ||
        ndim[0] != t->ndim || ndim[1] != t->ndim)
        return plait_dcp_wrong(dcp, t->name,
                               "has a chunk without a place or a size", err);
    for (int d = 0; d < t->ndim; d++)
        if (c->begin[d] > t->shape[d] || c->size[d] > t->shape[d] - c->begin[d])
            return plait_dcp_wrong(
                dcp, t->name, "has a chunk that reaches beyond its size", err);
    return 0;
}

static int order_chunks(const void *a, const void *b)
{
    const struct plait_dcp_chunk *x = a, *y = b;

    for (int d = 0; d < PLAIT_DCP_DIMS_MOST; d++)
        if (x->begin[d] != y->begin[d])
            return x->begin[d] < y->begin[d] ? -1 : 1;
    return 0;
}

/* Chunks without numbers, which ranks have that got none, are left out. */
static int read_chunks(const struct plait_dcp *dcp, const value_t *list,
                       struct plait_dcp_tensor *t, struct plait_error *err)
{
    if (!list || list->kind != PLAIT_PICKLE_LIST || list->n > 1 << 28)
        return plait_dcp_wrong(dcp, t->name, "has no list of chunks", err);
    t->chunks = calloc(list->n + 1, sizeof(*t->chunks));
    if (!t->chunks)
        return no_memory(dcp, err);
    for (size_t i = 0; i < list->n; i++) {
        struct plait_dcp_chunk *c = &t->chunks[t->nchunks];

        if (read_chunk(dcp, list->items[i], t, c, err) < 0)
            return -1;
        t->nchunks += plait_dcp_volume(t, c) > 0;
    }
    qsort(t->chunks, (size_t)t->nchunks, sizeof(*t->chunks), order_chunks);
    return 0;
}

static int read_tensor(const struct plait_dcp *dcp, const value_t *v,
                       struct plait_dcp_tensor *t, struct plait_error *err)
{
    uint64_t volume = 1;
    int rc = read_size(plait_pickle_find(v, "size"), t->shape, &t->ndim);

    if (rc < 0)
        return plait_dcp_wrong(dcp, t->name, "has no size", err);
    read_type(plait_pickle_find(v, "properties"), t);
    if (rc > 0) {
        strcpy(t->type_name, "of too many dimensions");
        t->supported = false;
        return 0;
    }
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(volume, t->shape[d], &volume) ||
            volume > SIZE_MOST)
            return plait_dcp_wrong(dcp, t->name, "is too large", err);
    return read_chunks(dcp, plait_pickle_find(v, "chunks"), t, err);
}

static int add_tensor(struct plait_dcp *dcp, const value_t *key,
                      const value_t *v, struct plait_error *err)
{
    struct plait_dcp_tensor *t, *more;
    char shown[128];

    if (is_of(v, METADATA "BytesStorageMetadata"))
        return 0;
    plait_pickle_show(key, shown);
    if (!is_of(v, METADATA "TensorStorageMetadata"))
        return plait_dcp_wrong(dcp, shown, "is described by another class",
                               err);
    if (dcp->n == dcp->room) {
        more =
            realloc(dcp->tensors, ((size_t)dcp->room * 2 + 64) * sizeof(*more));
        if (!more)
            return no_memory(dcp, err);
        dcp->tensors = more;
        dcp->room = dcp->room * 2 + 64;
    }
    t = &dcp->tensors[dcp->n];
    *t = (struct plait_dcp_tensor){.name = NULL};
    if (name_of(dcp, key, &t->name, err) < 0)
        return -1;
    if (!t->name)
        return plait_dcp_wrong(dcp, shown, "has no name", err);
    dcp->n++;
    return read_tensor(dcp, v, t, err);
}

static int order_tensors(const void *a, const void *b)
{
    const struct plait_dcp_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int read_tensors(struct plait_dcp *dcp, const value_t *dict,
                        struct plait_error *err)
{
    errno = EINVAL;
    if (!dict)
        return plait_errorf(
            err, "%s/" PLAIT_DCP_METADATA ": it has no state_dict_metadata",
            dcp->dir);
    for (size_t i = 0; i + 1 < dict->n; i += 2)
        if (add_tensor(dcp, dict->items[i], dict->items[i + 1], err) < 0)
            return -1;
    if (dcp->n)
        qsort(dcp->tensors, (size_t)dcp->n, sizeof(*dcp->tensors),
              order_tensors);
    for (int i = 1; i < dcp->n; i++)
        if (!strcmp(dcp->tensors[i - 1].name, dcp->tensors[i].name))
            return plait_dcp_wrong(dcp, dcp->tensors[i].name, "is there twice",
                                   err);
    return 0;
}

int plait_dcp_find(const struct plait_dcp *dcp, const char *name)
{
    const struct plait_dcp_tensor key = {.name = (char *)name}, *found;

    if (!dcp->n)
        return -1;
    found =
        bsearch(&key, dcp->tensors, (size_t)dcp->n, sizeof(key), order_tensors);
    return found ? (int)(found - dcp->tensors) : -1;
}

/* -- where the chunks are ------------------------------------------------- */

struct plait_dcp_chunk *
plait_dcp_chunk_at(struct plait_dcp_tensor *t,
                   const uint64_t begin[PLAIT_DCP_DIMS_MOST])
{
    struct plait_dcp_chunk key = {.nfile = 0};

    memcpy(key.begin, begin, sizeof(key.begin));
    return t->nchunks ? bsearch(&key, t->chunks, (size_t)t->nchunks,
                                sizeof(key), order_chunks)
                      : NULL;
}

/* The chunk that a MetadataIndex means; NULL: none that is kept. */
static int chunk_of(const struct plait_dcp *dcp, const value_t *index,
                    struct plait_dcp_chunk **chunk, struct plait_error *err)
{
    uint64_t begin[PLAIT_DCP_DIMS_MOST] = {0};
    const value_t *offset = plait_pickle_find(index, "offset");
    char *name;
    int ndim, at;

    *chunk = NULL;
    if (name_of(dcp, plait_pickle_find(index, "fqn"), &name, err) < 0)
        return -1;
    at = name ? plait_dcp_find(dcp, name) : -1;
    free(name);
    if (at >= 0 && (!offset || offset->kind == PLAIT_PICKLE_NONE ||
                    read_size(offset, begin, &ndim) == 0))
        *chunk = plait_dcp_chunk_at(&dcp->tensors[at], begin);
    return 0;
}

static int place_chunk(const struct plait_dcp *dcp, const value_t *index,
                       const value_t *info, struct plait_error *err)
{
    struct plait_dcp_chunk *c;
    const value_t *file = plait_pickle_find(info, "relative_path");
    const value_t *offset = plait_pickle_find(info, "offset");
    const value_t *length = plait_pickle_find(info, "length");
    const value_t *more = plait_pickle_find(info, "transform_descriptors");

    if (chunk_of(dcp, index, &c, err) < 0)
        return -1;
    if (!c)
        return 0;
    errno = EINVAL;
    if (!is_of(info, "torch.distributed.checkpoint.filesystem _StorageInfo") ||
        !file || file->kind != PLAIT_PICKLE_TEXT || !offset ||
        offset->kind != PLAIT_PICKLE_INT || offset->i < 0 || !length ||
        length->kind != PLAIT_PICKLE_INT || length->i < 0)
        return plait_errorf(err,
                            "%s/" PLAIT_DCP_METADATA
                            ": storage_data has a place without a file, an "
                            "offset or a length",
                            dcp->dir);
    c->file = file->text;
    c->nfile = file->n;
    c->offset = (uint64_t)offset->i;
    c->length = (uint64_t)length->i;
    c->transformed = more && more->kind == PLAIT_PICKLE_LIST && more->n > 0;
    return 0;
}

int plait_dcp_metadata_read(struct plait_dcp *dcp, struct plait_error *err)
{
    const value_t *root = plait_pickle_root(dcp->pickle), *unknown, *places;
    char shown[128];

    unknown = plait_pickle_unknown_name(dcp->pickle, known,
                                        sizeof(known) / sizeof(known[0]));
    errno = EINVAL;
    if (unknown) {
        plait_pickle_show(unknown, shown);
        return plait_errorf(err,
                            "%s/" PLAIT_DCP_METADATA
                            ": it names %s, which is not known in such a file",
                            dcp->dir, shown);
    }
    if (!is_of(root, METADATA "Metadata"))
        return plait_errorf(err,
                            "%s/" PLAIT_DCP_METADATA
                            ": it is not of class Metadata of "
                            "torch.distributed.checkpoint",
                            dcp->dir);
    if (read_tensors(
            dcp,
            plait_pickle_dict(plait_pickle_find(root, "state_dict_metadata")),
            err) < 0)
        return -1;
    places = plait_pickle_dict(plait_pickle_find(root, "storage_data"));
    for (size_t i = 0; places && i + 1 < places->n; i += 2)
        if (place_chunk(dcp, places->items[i], places->items[i + 1], err) < 0)
            return -1;
    return 0;
}
