/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_map.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/convert/convert.h"
#include "runtime/convert/convert_rows.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "topology/job/mup.h"

/* Writes a checkpoint's weights as Hugging Face's files. */

#define FILE_BYTES ((uint64_t)4 << 30) /* the most, of several tensors */

struct export
{
    struct plait_sources from;
    const char *dir;
    enum plait_dtype type;
    int n; /* Plait's tensors; parts of one stored tensor are neighbours */
    struct plait_hf_tensor *tensors;
    int nfiles;
    int *first; /* [nfiles + 1] first tensor of each file */
};

static enum plait_dtype type_of(const struct export *ex,
                                const struct plait_hf_tensor *t)
{
    return t->exact ? PLAIT_F32 : ex->type;
}

/* The bytes of a stored tensor, of which `index` is the first part. */
static uint64_t stored_bytes(const struct export *ex, int index)
{
    uint64_t shape[3], n = 1;
    int ndim = plait_hf_map_shape(&ex->tensors[index], shape);

    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n * plait_dtype_size(type_of(ex, &ex->tensors[index]));
}

static int divide_tensors(struct export *ex, struct plait_error *err)
{
    uint64_t bytes = 0, size;

    ex->first = calloc(ex->n + 1, sizeof(*ex->first));
    if (!ex->first)
        return plait_errorf(err, "%s: out of memory", ex->dir);
    for (int i = 0; i < ex->n; i += ex->tensors[i].parts) {
        size = stored_bytes(ex, i);
        if (i == 0 || bytes + size > FILE_BYTES) {
            ex->first[ex->nfiles++] = i;
            bytes = 0;
        }
        bytes += size;
    }
    ex->first[ex->nfiles] = ex->n;
    return 0;
}

static void name_file(const struct export *ex, int file, char *name,
                      size_t size)
{
    if (ex->nfiles == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05d-of-%05d.safetensors", file + 1,
                 ex->nfiles);
}

/* -- one file ------------------------------------------------------------- */

static const char *safetensors_name(enum plait_dtype type)
{
    return type == PLAIT_BF16_T ? "BF16" : type == PLAIT_FP16_T ? "F16" : "F32";
}

static json_t *build_head(const struct export *ex, int file)
{
    json_t *head = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, end, shape[3];
    int bad = !head;

    for (int i = ex->first[file]; i < ex->first[file + 1] && !bad;
         i += ex->tensors[i].parts) {
        const struct plait_hf_tensor *t = &ex->tensors[i];
        int ndim = plait_hf_map_shape(t, shape);
        json_t *sides = json_array();

        for (int k = 0; k < ndim; k++)
            bad |= json_array_append_new(sides,
                                         json_integer((json_int_t)shape[k]));
        end = at + stored_bytes(ex, i);
        bad |= json_object_set_new(head, t->hf,
                                   json_pack("{s:s,s:o,s:[I,I]}", "dtype",
                                             safetensors_name(type_of(ex, t)),
                                             "shape", sides, "data_offsets",
                                             (json_int_t)at, (json_int_t)end));
        at = end;
    }
    if (!bad)
        return head;
    json_decref(head);
    return NULL;
}

static int write_head(const struct export *ex, int file,
                      struct plait_file_out *out)
{
    json_t *head = build_head(ex, file);
    unsigned char *bytes = NULL;
    size_t size;
    int rc = -1;

    if (!head)
        errno = ENOMEM;
    else
        bytes = plait_safetensors_wrap(head, &size);
    if (bytes)
        rc = plait_file_out_write(out, bytes, size);
    free(bytes);
    json_decref(head);
    return rc;
}

struct pass {
    const struct export *ex;
    struct plait_file_out *out;
    float *box, *rows; /* [room] what is read, and what is written */
    uint64_t room;
    struct plait_error *err;
};

static int make_room(struct pass *p, uint64_t n)
{
    if (n <= p->room)
        return 0;
    free(p->box);
    free(p->rows);
    p->box = malloc(n * sizeof(*p->box));
    p->rows = malloc(n * sizeof(*p->rows));
    p->room = p->box && p->rows ? n : 0;
    return p->room ? 0 : plait_errorf(p->err, "%s: out of memory", p->ex->dir);
}

static int write_rows(struct pass *p, float *x, uint64_t n)
{
    if (plait_file_out_write(p->out, x,
                             plait_convert_narrow(x, n, p->ex->type)) == 0)
        return 0;
    return plait_errorf(p->err, "%s: cannot write: %s", p->ex->dir,
                        strerror(errno));
}

/* Read n columns of Plait's tensor to `to`. */
static int read_columns(const struct pass *p, const struct plait_hf_tensor *t,
                        uint64_t first, uint64_t n, float *to)
{
    struct plait_tensor_slice slice = {.shape = {t->rows, t->cols},
                                       .begin = {0, first},
                                       .box = {t->rows, n},
                                       .count = t->rows * n};
    int rc;

    snprintf(slice.name, sizeof(slice.name), "%s", t->name);
    rc = plait_sources_fill(&p->ex->from, &slice, to, p->err);
    plait_sources_drop(&p->ex->from, t->name);
    return rc;
}

static int write_plain(struct pass *p, const struct plait_hf_tensor *t)
{
    struct plait_row_run run = {.rows = t->rows, .cols = t->cols, .n = t->rows};

    memcpy(run.name, t->name, sizeof(run.name));
    return plait_convert_write_run(&p->ex->from, &run, type_of(p->ex, t),
                                   p->out, p->err);
}

/* Each column of a part is a section of a row of the stored tensor, or has
 * every stride-th number of it. `parts` of them are the whole or one slab. */
static int write_transposed(struct pass *p, const struct plait_hf_tensor *t,
                            int parts)
{
    uint64_t wide = t->all, most = PLAIT_CONVERT_CHUNK / wide, n;

    most = most < 1 ? 1 : most > t->cols ? t->cols : most;
    if (make_room(p, most * wide) < 0)
        return -1;
    for (uint64_t col = 0; col < t->cols; col += n) {
        n = t->cols - col < most ? t->cols - col : most;
        for (int part = 0; part < parts; part++) {
            const struct plait_hf_tensor *one = t + part;

            if (read_columns(p, one, col, n, p->box) < 0)
                return -1;
            for (uint64_t r = 0; r < t->rows; r++)
                for (uint64_t c = 0; c < n; c++)
                    p->rows[c * wide + one->before + r * one->stride] =
                        p->box[r * n + c];
        }
        if (write_rows(p, p->rows, n * wide) < 0)
            return -1;
    }
    return 0;
}

/* Whether rows of the stored tensor's parts lie between those of others, or are
 * in another order: those of the last part, if of any. */
static bool has_heads(const struct plait_hf_tensor *t)
{
    return !t->slabs && t[t->parts - 1].heads > 0;
}

/* All parts of a stored tensor at once. */
static int write_heads(struct pass *p, const struct plait_hf_tensor *t)
{
    uint64_t size = t->all * t->cols;

    if (make_room(p, size) < 0)
        return -1;
    for (int part = 0; part < t->parts; part++) {
        const struct plait_hf_tensor *one = t + part;

        if (read_columns(p, one, 0, one->cols, p->box) < 0)
            return -1;
        for (uint64_t r = 0; r < one->rows; r++) {
            uint64_t to =
                one->heads ? plait_hf_map_row(one, r) : one->before + r;

            memcpy(p->rows + to * t->cols, p->box + r * t->cols,
                   t->cols * sizeof(*p->rows));
        }
    }
    return write_rows(p, p->rows, size);
}

static int write_tensors(struct pass *p, int first, int end)
{
    const struct plait_hf_tensor *t = p->ex->tensors + first;
    int parts;

    for (; t < p->ex->tensors + end; t += parts) {
        parts = has_heads(t)     ? t->parts
                : !t->transposed ? 1
                : t->slabs       ? t->parts / t->slabs
                                 : t->parts;
        if (has_heads(t)    ? write_heads(p, t) < 0
            : t->transposed ? write_transposed(p, t, parts) < 0
                            : write_plain(p, t) < 0)
            return -1;
    }
    return 0;
}

static int write_file(void *arg, int file, struct plait_error *err)
{
    const struct export *ex = arg;
    struct plait_file_out out;
    struct pass p = {.ex = ex, .out = &out, .err = err};
    char path[4096], name[64];
    int rc;

    name_file(ex, file, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", ex->dir, name);
    if (plait_file_out_open(&out, path) < 0 || write_head(ex, file, &out) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    else
        rc = write_tensors(&p, ex->first[file], ex->first[file + 1]);
    if (plait_file_out_close(&out, rc == 0) < 0 && rc == 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    free(p.box);
    free(p.rows);
    return rc;
}

/* -- all of them ---------------------------------------------------------- */

static int write_index(const struct export *ex, struct plait_error *err)
{
    json_t *map = json_object(), *root;
    char path[4096], name[64];
    uint64_t total = 0;
    int rc = 0;

    if (ex->nfiles == 1) {
        json_decref(map);
        return 0;
    }
    for (int file = 0; file < ex->nfiles; file++) {
        name_file(ex, file, name, sizeof(name));
        for (int i = ex->first[file]; i < ex->first[file + 1];
             i += ex->tensors[i].parts) {
            json_object_set_new(map, ex->tensors[i].hf, json_string(name));
            total += stored_bytes(ex, i);
        }
    }
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", ex->dir);
    root = json_pack("{s:{s:I},s:o}", "metadata", "total_size",
                     (json_int_t)total, "weight_map", map);
    if (!root || json_dump_file(root, path, JSON_INDENT(2)) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    json_decref(root);
    return rc;
}

static int check_parameters(const struct export *ex, struct plait_error *err)
{
    int64_t n = 0;

    for (int i = 0; i < ex->n; i++)
        n += (int64_t)(ex->tensors[i].rows * ex->tensors[i].cols);
    return plait_convert_check_parameters(&ex->from, n, err);
}

/* The token that ends a text, by the tokenizer that has been copied to the
 * directory; -1: there is none, or it cannot be read. */
static int32_t find_end(const char *dir)
{
    static const char *const kinds[] = {"bpe", "spm"};
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    struct plait_tokenizer *t = NULL;
    struct plait_error why;
    char spec[4200];
    int32_t end;

    for (int i = 0; i < 2 && !t; i++) {
        snprintf(spec, sizeof(spec), "%s:%s/%s", kinds[i], dir, names[i]);
        t = plait_tokenizer_create(spec, &why);
    }
    end = t ? plait_tokenizer_end(t) : -1;
    plait_tokenizer_destroy(t);
    return end;
}

/* The model that computes the same without mup, of which no other format
 * knows. */
static int read_model(const char *path, struct plait_model_config *model,
                      struct plait_error *err)
{
    if (plait_model_file_read(path, model, err) < 0)
        return -1;
    plait_mup_resolve(model);
    return plait_hf_config_possible(model, err);
}

static int write_all(struct export *ex, const struct plait_model_config *model,
                     const char *like, struct plait_error *err)
{
    ex->n = plait_hf_map_create(model, plait_hf_config_like_fused(model, like),
                                &ex->tensors);
    if (ex->n < 0)
        return plait_errorf(err, "%s: out of memory", ex->dir);
    if (check_parameters(ex, err) < 0 || divide_tensors(ex, err) < 0 ||
        plait_convert_files(ex->nfiles, write_file, ex, err) < 0 ||
        write_index(ex, err) < 0)
        return -1;
    return plait_hf_config_write(ex->dir, model, ex->type, like,
                                 find_end(ex->dir), err);
}

/* A type may have no rate for what layers add. */
static void note_dropout(const char *dir, const struct plait_model_config *m,
                         struct plait_converted *done)
{
    struct plait_model_config written;
    struct plait_error why;

    if (plait_hf_config_read(dir, &written, &why) == 0 &&
        written.dropout < m->dropout)
        snprintf(done->dropout, sizeof(done->dropout),
                 "model.dropout %g is left out: Hugging Face's type of model "
                 "has none; only training it on differs",
                 m->dropout);
}

int plait_convert_to_hf(const char *path, const char *dir,
                        enum plait_dtype type, const char *like,
                        struct plait_converted *done, struct plait_error *err)
{
    struct export ex = {.dir = dir, .type = type};
    struct plait_model_config model;
    int rc = -1;

    if (read_model(path, &model, err) == 0 &&
        plait_convert_open(&ex.from, path, err) == 0)
        rc = write_all(&ex, &model, like, err);
    if (rc == 0)
        *done =
            (struct plait_converted){.tensors = ex.n,
                                     .parameters = ex.from.manifest.parameters,
                                     .files = ex.nfiles};
    if (rc == 0)
        note_dropout(dir, &model, done);
    plait_sources_close(&ex.from);
    free(ex.tensors);
    free(ex.first);
    return rc;
}
