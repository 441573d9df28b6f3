/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/hf_weights.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_files.h"

/* How much plait_hf_weights_fill() reads at a time. */
#define CHUNK ((uint64_t)1 << 20) /* elements */

struct plait_hf_weights {
    char *dir;
    struct plait_model_config model;
    struct plait_hf_files files;
    int n;
    struct plait_hf_tensor *tensors;
    const struct plait_hf_stored **stored; /* [n], of files */
    bool predicts; /* config.json has layers behind the last one, which predict
                    * further tokens */
    bool left_out; /* and so have the files */
    bool images;   /* beside the text model is one of images */
};

/* -- a head that should be the embedding ---------------------------------- */

/* A model that ties its head to the embedding by config.json, and has both
 * stored, is tied if they are equal, as in transformers 5: files that were
 * trained with a head of their own keep the key of what they began as. */
static int settle_tie(const struct plait_hf_files *f,
                      struct plait_model_config *m, struct plait_error *err)
{
    const struct plait_hf_stored *head =
        plait_hf_files_find_any(f, "lm_head.weight");
    const struct plait_hf_stored *embedding = plait_hf_files_find_any(
        f, m->family == PLAIT_GPT2 ? "transformer.wte.weight"
                                   : "model.embed_tokens.weight");
    int differs;

    if (!m->tie_embeddings || !head || !embedding)
        return 0;
    differs = plait_hf_files_compare(f, head, embedding, err);
    if (differs > 0)
        m->tie_embeddings = false;
    return differs < 0 ? -1 : 0;
}

int plait_hf_model_read(const char *dir, struct plait_model_config *model,
                        struct plait_error *err)
{
    struct plait_model_config read;
    struct plait_hf_files files;
    int rc = plait_hf_config_read(dir, &read, err);

    if (rc == 0 && read.tie_embeddings) {
        rc = plait_hf_files_open(&files, dir, err);
        if (rc == 0)
            rc = settle_tie(&files, &read, err);
        plait_hf_files_close(&files);
    }
    if (rc == 0)
        *model = read;
    return rc;
}

/* -- opening -------------------------------------------------------------- */

static int check_stored(const struct plait_hf_weights *w,
                        const struct plait_hf_tensor *t,
                        const struct plait_hf_stored *s,
                        struct plait_error *err)
{
    uint64_t shape[3];
    int ndim = plait_hf_map_shape(t, shape), same = 0;

    errno = EINVAL;
    if (!s)
        return plait_errorf(err,
                            "%s: tensor %s is missing; config.json requires it",
                            w->dir, t->hf);
    if (!plait_hf_files_has_type(s))
        return plait_errorf(err,
                            "%s: tensor %s has type %s; only F32, BF16 and "
                            "F16 are supported",
                            w->dir, s->name, s->dtype);
    while (same < ndim && s->shape[same] == shape[same])
        same++;
    if (s->ndim == ndim && same == ndim)
        return 0;
    if (s->ndim != ndim)
        return plait_errorf(err,
                            "%s: tensor %s has %d dimensions; by config.json "
                            "it must have %d",
                            w->dir, s->name, s->ndim, ndim);
    if (ndim == 3)
        return plait_errorf(err,
                            "%s: tensor %s has %" PRIu64 " for dimension %d; "
                            "by config.json it must be %" PRIu64,
                            w->dir, s->name, s->shape[same], same, shape[same]);
    return plait_errorf(err,
                        "%s: tensor %s is [%" PRIu64 ", %" PRIu64
                        "], by config.json it must be [%" PRIu64 ", %" PRIu64
                        "]",
                        w->dir, s->name, s->shape[0], s->shape[1], shape[0],
                        ndim == 1 ? 0 : shape[1]);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* Whether the files have, behind the last layer, the one module of multi-token
 * prediction that plait-train has: transformers leaves it out where it saves a
 * model, and keeps the key. */
static bool has_module(const struct plait_hf_weights *w)
{
    static const char *const parts[] = {"enorm", "hnorm", "eh_proj",
                                        "shared_head.norm", "input_layernorm"};
    char name[64];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "model.layers.%d.%s.weight",
                 w->model.layers, parts[i]);
        if (!plait_hf_files_find_any(&w->files, name))
            return false;
    }
    snprintf(name, sizeof(name), "model.layers.%d.eh_proj.weight",
             w->model.layers + 1);
    return !plait_hf_files_find_any(&w->files, name);
}

/* Whether it is of a layer behind the model's last one. */
static bool is_behind(const struct plait_hf_weights *w, const char *name)
{
    static const char begin[] = "model.layers.";
    size_t n = sizeof(begin) - 1;

    return !strncmp(name, begin, n) &&
           strtol(name + n, NULL, 10) >= w->model.layers;
}

/* Of which tensor of the model the module stores a copy by this name; NULL: it
 * is no copy. */
static const char *own_of_copy(const struct plait_hf_weights *w,
                               const char *name)
{
    const char *embedding = "model.embed_tokens.weight";
    char copy[64];

    if (!w->model.mtp_layers)
        return NULL;
    snprintf(copy, sizeof(copy), "model.layers.%d.embed_tokens.weight",
             w->model.layers);
    if (!strcmp(name, copy))
        return embedding;
    snprintf(copy, sizeof(copy), "model.layers.%d.shared_head.head.weight",
             w->model.layers);
    if (strcmp(name, copy) != 0)
        return NULL;
    return w->model.tie_embeddings ? embedding : "lm_head.weight";
}

int plait_hf_weights_check_copies(const struct plait_hf_weights *w,
                                  struct plait_error *err)
{
    for (int i = 0; i < w->files.ntensors; i++) {
        const struct plait_hf_stored *s = &w->files.tensors[i], *model;
        const char *own = own_of_copy(w, s->name);
        int differs;

        if (!own || !(model = plait_hf_files_find_any(&w->files, own)))
            continue;
        differs = plait_hf_files_has_type(s)
                      ? plait_hf_files_compare(&w->files, s, model, err)
                      : 1;
        if (differs < 0)
            return -1;
        errno = EINVAL;
        if (differs)
            return plait_errorf(err,
                                "%s: tensor %s is not %s, which plait-train's "
                                "layer of multi-token prediction shares; "
                                "model.mtp_layers 0 trains without that layer",
                                w->dir, s->name, own);
    }
    return 0;
}

int plait_hf_weights_find_module(const char *dir, int *layers,
                                 struct plait_error *err)
{
    struct plait_hf_weights *w = plait_hf_weights_open(dir, true, err);
    int rc = w ? plait_hf_weights_check_copies(w, err) : -1;

    if (rc == 0)
        *layers = w->model.mtp_layers;
    plait_hf_weights_close(w);
    return rc;
}

/* Tensors that may be ignored: those of a model of images; what older versions
 * of transformers have saved besides weights, and the head of a model that ties
 * it to the embedding. */
static bool is_spare(const struct plait_hf_weights *w, const char *name)
{
    if (w->images && (!strncmp(name, "vision_model.", 13) ||
                      !strncmp(name, "multi_modal_projector.", 22)))
        return true;
    if (!strcmp(name, "lm_head.weight"))
        return w->model.tie_embeddings;
    return ends_with(name, ".rotary_emb.inv_freq") ||
           ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".attn.bias");
}

static int match_tensors(struct plait_hf_weights *w, struct plait_error *err)
{
    bool *used = calloc(w->files.ntensors + 1, sizeof(*used));
    int rc = 0;

    if (!used)
        return plait_errorf(err, "%s: out of memory", w->dir);
    for (int i = 0; i < w->n && rc == 0; i++) {
        w->stored[i] = plait_hf_files_find_any(&w->files, w->tensors[i].hf);
        rc = check_stored(w, &w->tensors[i], w->stored[i], err);
        if (rc == 0)
            used[w->stored[i] - w->files.tensors] = true;
    }
    for (int i = 0; i < w->files.ntensors && rc == 0; i++) {
        const char *name = w->files.tensors[i].name;

        errno = EINVAL;
        if (used[i])
            continue;
        if (w->predicts && !w->model.mtp_layers && is_behind(w, name))
            w->left_out = true;
        else if (!own_of_copy(w, name) && !is_spare(w, name))
            rc = plait_errorf(err,
                              "%s: tensor %s does not belong to the model "
                              "that config.json describes",
                              w->dir, name);
    }
    free(used);
    return rc;
}

struct plait_hf_weights *plait_hf_weights_open(const char *dir, bool module,
                                               struct plait_error *err)
{
    struct plait_hf_weights *w = calloc(1, sizeof(*w));

    if (!w || !(w->dir = strdup(dir)))
        goto memory;
    if (plait_hf_config_read(dir, &w->model, err) < 0 ||
        plait_hf_files_open(&w->files, w->dir, err) < 0 ||
        settle_tie(&w->files, &w->model, err) < 0)
        goto error;
    w->predicts = plait_hf_config_predicts(dir) != NULL;
    w->model.mtp_layers = module && w->predicts && has_module(w);
    w->n =
        plait_hf_map_create(&w->model, plait_hf_config_fused(dir), &w->tensors);
    w->stored = w->n < 0 ? NULL : calloc(w->n + 1, sizeof(*w->stored));
    if (!w->stored)
        goto memory;
    w->images = plait_hf_config_images(dir);
    if (match_tensors(w, err) < 0)
        goto error;
    return w;
memory:
    plait_errorf(err, "%s: out of memory", dir);
error:
    plait_hf_weights_close(w);
    return NULL;
}

void plait_hf_weights_close(struct plait_hf_weights *w)
{
    int saved = errno;

    if (!w)
        return;
    plait_hf_files_close(&w->files);
    free(w->stored);
    free(w->tensors);
    free(w->dir);
    free(w);
    errno = saved;
}

bool plait_hf_weights_left_out(const struct plait_hf_weights *w)
{
    return w->left_out;
}

const struct plait_model_config *
plait_hf_weights_model(const struct plait_hf_weights *w)
{
    return &w->model;
}

int plait_hf_weights_list(const struct plait_hf_weights *w,
                          const struct plait_hf_tensor **tensors)
{
    *tensors = w->tensors;
    return w->n;
}

int64_t plait_hf_weights_parameters(const struct plait_hf_weights *w)
{
    int64_t n = 0;

    for (int i = 0; i < w->n; i++)
        n += (int64_t)(w->tensors[i].rows * w->tensors[i].cols);
    return n;
}

/* -- reading -------------------------------------------------------------- */

/* Where the stored tensor, or the slab that has this part, begins. */
static uint64_t slab_at(const struct plait_hf_tensor *t)
{
    return (uint64_t)t->slab * t->all * t->cols;
}

/* Number i of a vector is a part of row i of its slab, which is read whole. */
static int read_vector(const struct plait_hf_weights *w, int index, float *out,
                       struct plait_error *err)
{
    const struct plait_hf_tensor *t = &w->tensors[index];
    uint64_t wide = t->cols * t->all;
    float *slab = malloc(wide * sizeof(*slab));
    int rc = slab ? plait_hf_files_read_run(&w->files, w->stored[index],
                                            slab_at(t), wide, slab, err)
                  : plait_errorf(err, "%s: out of memory", w->dir);

    for (uint64_t i = 0; i < t->cols && rc == 0; i++)
        out[i] = slab[i * t->all + t->before];
    free(slab);
    return rc;
}

/* Column c of Plait's tensor is a part of row c of the stored one. */
static int read_transposed(const struct plait_hf_weights *w, int index,
                           uint64_t row, uint64_t n, float *out,
                           struct plait_error *err)
{
    const struct plait_hf_tensor *t = &w->tensors[index];
    uint64_t stride = (uint64_t)t->stride, wide = (n - 1) * stride + 1;
    uint64_t first = slab_at(t) + t->before + row * stride;
    float *run = malloc(wide * sizeof(*run));
    int rc = run ? 0 : plait_errorf(err, "%s: out of memory", w->dir);

    for (uint64_t c = 0; c < t->cols && rc == 0; c++) {
        rc = plait_hf_files_read_run(&w->files, w->stored[index],
                                     first + c * t->all, wide, run, err);
        for (uint64_t i = 0; i < n && rc == 0; i++)
            out[i * t->cols + c] = run[i * stride];
    }
    free(run);
    return rc;
}

/* Rows that follow each other in the file are read at once. */
static int read_heads(const struct plait_hf_weights *w, int index, uint64_t row,
                      uint64_t n, float *out, struct plait_error *err)
{
    const struct plait_hf_tensor *t = &w->tensors[index];

    for (uint64_t i = 0, run; i < n; i += run) {
        uint64_t first = plait_hf_map_row(t, row + i);

        for (run = 1; i + run < n; run++)
            if (plait_hf_map_row(t, row + i + run) != first + run)
                break;
        if (plait_hf_files_read_run(&w->files, w->stored[index],
                                    first * t->cols, run * t->cols,
                                    out + i * t->cols, err) < 0)
            return -1;
    }
    return 0;
}

int plait_hf_weights_read(const struct plait_hf_weights *w, int index,
                          uint64_t row, uint64_t n, float *out,
                          struct plait_error *err)
{
    const struct plait_hf_tensor *t = &w->tensors[index];
    const struct plait_hf_stored *s = w->stored[index];

    if (t->transposed)
        return t->vector ? read_vector(w, index, out, err)
                         : read_transposed(w, index, row, n, out, err);
    if (t->heads)
        return read_heads(w, index, row, n, out, err);
    return plait_hf_files_read_run(&w->files, s,
                                   slab_at(t) + (t->before + row) * t->cols,
                                   n * t->cols, out, err);
}

/* Read whole rows, a chunk at a time, and copy what the slice holds of them. */
static int fill_rows(const struct plait_hf_weights *w, int index,
                     const struct plait_tensor_slice *slice, float *out,
                     struct plait_error *err)
{
    const struct plait_hf_tensor *t = &w->tensors[index];
    uint64_t row = slice->begin[0] + slice->first / slice->box[1];
    uint64_t end =
        slice->begin[0] +
        (slice->first + slice->count + slice->box[1] - 1) / slice->box[1];
    uint64_t most = CHUNK / t->cols ? CHUNK / t->cols : 1, n;
    float *chunk = malloc(most * t->cols * sizeof(*chunk));
    int rc = chunk ? 0 : plait_errorf(err, "%s: out of memory", w->dir);

    end = end < t->rows ? end : t->rows;
    for (; row < end && rc == 0; row += n) {
        struct plait_tensor_slice from = *slice;

        n = end - row < most ? end - row : most;
        from.begin[0] = row;
        from.begin[1] = from.first = 0;
        from.box[0] = n;
        from.box[1] = t->cols;
        from.count = n * t->cols;
        rc = plait_hf_weights_read(w, index, row, n, chunk, err);
        if (rc == 0)
            plait_tensor_slice_copy(slice, out, &from, chunk);
    }
    free(chunk);
    return rc;
}

int plait_hf_weights_fill(const struct plait_hf_weights *w,
                          const struct plait_tensor_slice *slice, float *out,
                          struct plait_error *err)
{
    for (int i = 0; i < w->n; i++) {
        const struct plait_hf_tensor *t = &w->tensors[i];

        if (strcmp(t->name, slice->name) != 0)
            continue;
        errno = EINVAL;
        if (t->rows != slice->shape[0] || t->cols != slice->shape[1])
            return plait_errorf(err,
                                "%s: tensor %s is [%" PRIu64 ", %" PRIu64
                                "] there, [%" PRIu64 ", %" PRIu64
                                "] in this model",
                                w->dir, t->name, t->rows, t->cols,
                                slice->shape[0], slice->shape[1]);
        memset(out, 0, slice->count * sizeof(*out));
        return slice->count ? fill_rows(w, i, slice, out, err) : 0;
    }
    errno = EINVAL;
    return plait_errorf(err, "%s: tensor %s of this model is missing", w->dir,
                        slice->name);
}
