/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Megatron checkpoint: finds it, opens its files, and writes their
 * tensors as a checkpoint. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "runtime/convert/megatron.h"
#include "runtime/convert/megatron_args.h"
#include "runtime/convert/megatron_rows.h"
#include "runtime/convert/torch_tensor.h"

#define FILE_NAME "model_optim_rng.pt"
#define TRACKER "latest_checkpointed_iteration.txt"

/* -- which checkpoint ----------------------------------------------------- */

static bool is_there(const char *dir, const char *name)
{
    char path[4096 + 128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* The tracker file has "release" or the number of steps. */
static int follow_tracker(const char *dir, char path[4096],
                          struct plait_error *err)
{
    char name[4096 + 64], text[32] = "", rest;
    FILE *in;
    long step = -1;

    snprintf(name, sizeof(name), "%s/" TRACKER, dir);
    in = fopen(name, "r");
    if (!in)
        return plait_errorf(err, "%s: %s", name, strerror(errno));
    if (!fgets(text, sizeof(text), in))
        text[0] = '\0';
    fclose(in);
    text[strcspn(text, "\r\n")] = '\0';
    errno = EINVAL;
    if (strcmp(text, "release") != 0 &&
        (sscanf(text, "%9ld%c", &step, &rest) != 1 || step < 0))
        return plait_errorf(err,
                            "%s: has neither \"release\" nor the number of an "
                            "iteration",
                            name);
    if (step < 0)
        snprintf(path, 4096, "%.4000s/release", dir);
    else
        snprintf(path, 4096, "%.4000s/iter_%07ld", dir, step);
    return 0;
}

int plait_megatron_find(const char *dir, char path[4096],
                        struct plait_error *err)
{
    bool tracker = is_there(dir, TRACKER);

    snprintf(path, 4096, "%.4000s", dir);
    if (tracker && follow_tracker(dir, path, err) < 0)
        return -1;
    if (is_there(path, "mp_rank_00/" FILE_NAME) ||
        is_there(path, "mp_rank_00_000/" FILE_NAME))
        return 1;
    if (plait_megatron_is_distributed(path))
        return 1;
    if (!tracker)
        return 0;
    errno = ENOENT;
    return plait_errorf(err,
                        "%s: neither mp_rank_00/" FILE_NAME
                        " nor common.pt (of torch_dist) is in it",
                        path);
}

/* -- its files ------------------------------------------------------------ */

struct megatron {
    const char *path;
    struct plait_megatron_args args;
    struct plait_megatron_map *map;
    int nfiles;
    struct plait_torch_file **files;
    struct plait_torch_tensor *stored; /* [map->nstored] */
    struct plait_error *err;
};

static void name_path(const struct megatron *m,
                      const struct plait_megatron_layout *layout, int file,
                      char path[4096 + 64])
{
    char name[32];

    plait_megatron_file_name(layout, file, name);
    snprintf(path, 4096 + 64, "%s/%s/" FILE_NAME, m->path, name);
}

static const struct plait_pickle_value *
model_of(const struct plait_torch_file *file)
{
    return plait_pickle_dict(
        plait_pickle_find(plait_torch_file_root(file), "model"));
}

static int check_model(const struct plait_torch_file *file, const char *path,
                       struct plait_error *err)
{
    const struct plait_pickle_value *root = plait_torch_file_root(file);

    errno = EINVAL;
    if (!plait_pickle_dict(root))
        return plait_errorf(err, "%s: its pickle is not a dict", path);
    if (plait_pickle_find(root, "model0"))
        return plait_errorf(err,
                            "%s: a pipeline of virtual stages (model0, ...) "
                            "is not supported",
                            path);
    if (!model_of(file))
        return plait_errorf(err, "%s: it has no \"model\", a dict of tensors",
                            path);
    if (plait_pickle_find(model_of(file), "language_model"))
        return plait_errorf(err,
                            "%s: legacy models are not supported; only "
                            "Megatron-core's (--use-mcore-models)",
                            path);
    return 0;
}

/* The first file says how many files there are. */
static int open_first(struct megatron *m)
{
    struct plait_megatron_layout first = {.tp = 1, .pp = 1};
    struct plait_torch_file *file;
    char path[4096 + 64];
    int rc;

    name_path(m, &first, 0, path);
    if (access(path, F_OK) < 0) {
        first.pp = 2;
        name_path(m, &first, 0, path);
    }
    file = plait_torch_file_open(path, m->err);
    if (!file)
        return -1;
    rc = check_model(file, path, m->err);
    if (rc == 0)
        rc = plait_megatron_args_read(
            path, plait_pickle_find(plait_torch_file_root(file), "args"), false,
            &m->args, m->err);
    if (rc == 0)
        m->args.layout.local =
            plait_pickle_find(model_of(file),
                              "decoder.layers.0.self_attention.linear_qkv."
                              "layer_norm_weight") == NULL;
    plait_torch_file_close(file);
    return rc;
}

static int open_files(struct megatron *m)
{
    const struct plait_megatron_layout *l = &m->args.layout;
    int n = l->tp * l->pp;
    char path[4096 + 64];

    m->files = calloc((size_t)n, sizeof(*m->files));
    m->map = plait_megatron_map_create(&m->args.model, m->args.padded_vocab, l);
    if (m->map)
        m->stored = calloc((size_t)m->map->nstored, sizeof(*m->stored));
    if (!m->files || !m->stored)
        return plait_errorf(m->err, "%s: out of memory", m->path);
    for (; m->nfiles < n; m->nfiles++) {
        name_path(m, l, m->nfiles, path);
        m->files[m->nfiles] = plait_torch_file_open(path, m->err);
        if (!m->files[m->nfiles])
            return -1;
        if (check_model(m->files[m->nfiles], path, m->err) < 0) {
            m->nfiles++;
            return -1;
        }
    }
    return 0;
}

/* -- its tensors ---------------------------------------------------------- */

static int check_tensor(const struct megatron *m, int file, int index,
                        const struct plait_pickle_value *value)
{
    const struct plait_megatron_stored *s = &m->map->stored[index];
    struct plait_torch_tensor *t = &m->stored[index];
    char path[4096 + 64];
    struct plait_error why;

    name_path(m, &m->args.layout, file, path);
    errno = EINVAL;
    if (!value)
        return plait_errorf(m->err,
                            "%s: tensor %s is missing; its args "
                            "require it",
                            path, s->name);
    if (plait_torch_tensor_of(m->files[file], value, t, &why) < 0)
        return plait_errorf(m->err, "%s: tensor %s %s", path, s->name,
                            why.text);
    errno = EINVAL;
    if (t->ndim != 2 - s->vector || t->shape[0] != s->rows ||
        t->shape[1] != s->cols)
        return plait_errorf(
            m->err,
            "%s: tensor %s is [%" PRIu64 ", %" PRIu64
            "], by its args it must be [%" PRIu64 ", %" PRIu64 "]",
            path, s->name, t->shape[0], t->shape[1], s->rows, s->cols);
    return 0;
}

/* Entries that Transformer Engine saves besides weights. */
static bool is_extra(const struct plait_pickle_value *key)
{
    static const char end[] = "_extra_state";
    size_t n = sizeof(end) - 1;

    return key->kind == PLAIT_PICKLE_TEXT && key->n >= n &&
           memcmp(key->text + key->n - n, end, n) == 0;
}

static int order_by_name(const void *a, const void *b)
{
    const struct plait_megatron_stored *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static const struct plait_megatron_stored *
find_stored(const struct plait_megatron_stored **list, int n,
            const struct plait_pickle_value *key)
{
    struct plait_megatron_stored want;
    const struct plait_megatron_stored *at = &want, **found;

    if (key->kind != PLAIT_PICKLE_TEXT || key->n >= sizeof(want.name))
        return NULL;
    memcpy(want.name, key->text, key->n);
    want.name[key->n] = '\0';
    found = bsearch(&at, list, (size_t)n, sizeof(at), order_by_name);
    return found ? *found : NULL;
}

static int not_of_model(const struct megatron *m, int file,
                        const struct plait_pickle_value *key)
{
    char path[4096 + 64];
    bool text = key->kind == PLAIT_PICKLE_TEXT;

    name_path(m, &m->args.layout, file, path);
    errno = EINVAL;
    return plait_errorf(
        m->err,
        "%s: tensor %.*s does not belong to the model that its args "
        "describe",
        path, text ? (int)(key->n < 100 ? key->n : 100) : 1,
        text ? key->text : "?");
}

static int match_file(struct megatron *m, int file)
{
    const struct plait_pickle_value *dict = model_of(m->files[file]);
    int first = m->map->first[file], n = m->map->first[file + 1] - first;
    const struct plait_megatron_stored **list, *s;
    const struct plait_pickle_value **found;
    int rc = 0;

    list = calloc((size_t)n, sizeof(*list));
    found = calloc((size_t)n, sizeof(*found));
    if (!list || !found)
        rc = plait_errorf(m->err, "%s: out of memory", m->path);
    for (int i = 0; rc == 0 && i < n; i++)
        list[i] = &m->map->stored[first + i];
    if (rc == 0)
        qsort(list, (size_t)n, sizeof(*list), order_by_name);
    for (size_t i = 0; rc == 0 && i + 1 < dict->n; i += 2) {
        s = find_stored(list, n, dict->items[i]);
        if (s)
            found[s - m->map->stored - first] = dict->items[i + 1];
        else if (!is_extra(dict->items[i]))
            rc = not_of_model(m, file, dict->items[i]);
    }
    for (int i = 0; rc == 0 && i < n; i++)
        rc = check_tensor(m, file, first + i, found[i]);
    free(list);
    free(found);
    return rc;
}

static int open_checkpoint(struct megatron *m)
{
    if (open_first(m) < 0 || open_files(m) < 0)
        return -1;
    for (int file = 0; file < m->nfiles; file++)
        if (match_file(m, file) < 0)
            return -1;
    return 0;
}

static void close_checkpoint(struct megatron *m)
{
    for (int i = 0; i < m->nfiles; i++)
        plait_torch_file_close(m->files[i]);
    free(m->files);
    free(m->stored);
    plait_megatron_map_destroy(m->map);
}

/* -- reading -------------------------------------------------------------- */

/* Widen 16-bit numbers to fp32, in place. */
static void widen(float *x, uint64_t n, enum plait_dtype type)
{
    uint16_t bits;

    for (uint64_t i = n; type != PLAIT_F32 && i-- > 0;) {
        memcpy(&bits, (const char *)x + 2 * i, 2);
        x[i] = type == PLAIT_BF16_T ? plait_f32_of_bf16(bits)
                                    : plait_f32_of_fp16(bits);
    }
}

static int file_of(const struct plait_megatron_map *map, int stored)
{
    int file = 0;

    while (stored >= map->first[file + 1])
        file++;
    return file;
}

static int read_stored(const void *from, int stored, uint64_t row, uint64_t n,
                       float *out, struct plait_error *err)
{
    const struct megatron *m = from;
    const struct plait_torch_tensor *t = &m->stored[stored];
    uint64_t cols = m->map->stored[stored].cols;
    size_t size = plait_dtype_size(t->type);

    if (plait_torch_file_read(m->files[file_of(m->map, stored)],
                              t->offset + row * cols * size, out,
                              n * cols * size, err) < 0)
        return -1;
    widen(out, n * cols, t->type);
    return 0;
}

int plait_convert_from_megatron(const char *path, const char *dir,
                                struct plait_converted *done,
                                struct plait_error *err)
{
    struct megatron m = {.path = path, .err = err};
    struct plait_megatron_source source = {
        .path = path, .args = &m.args, .read = read_stored, .from = &m};
    int rc;

    if (plait_megatron_is_distributed(path))
        return plait_convert_from_megatron_dist(path, dir, done, err);
    rc = open_checkpoint(&m);
    if (rc == 0) {
        source.map = m.map;
        rc = plait_megatron_import(&source, dir, done, err);
    }
    close_checkpoint(&m);
    return rc;
}
