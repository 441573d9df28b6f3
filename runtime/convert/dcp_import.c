/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the weights of a model in a checkpoint of DCP's, and writes them as a
 * checkpoint of Plait's. */
#include "runtime/convert/dcp_import.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/convert/dcp_names.h"
#include "topology/base/files.h"

struct source {
    const char *dir;
    struct plait_model_config model;
    bool untied; /* config.json ties a head that differs */
    struct plait_dcp *dcp;
    struct plait_dcp_names names;
    int n;
    struct plait_hf_tensor *tensors;
    struct plait_dcp_place *places; /* [n] */
};

int plait_dcp_config_find(const char *dir, char path[4096],
                          struct plait_error *err)
{
    snprintf(path, 4096, "%.4000s", dir);
    if (plait_files_has(path, "config.json"))
        return 0;
    snprintf(path, 4096, "%.4000s/..", dir);
    if (plait_files_has(path, "config.json"))
        return 0;
    errno = ENOENT;
    return plait_errorf(err,
                        "%s: a checkpoint of torch.distributed.checkpoint says "
                        "nothing of its model: copy the model's config.json "
                        "(Hugging Face's) there",
                        dir);
}

static int no_memory(const struct source *s, struct plait_error *err)
{
    errno = ENOMEM;
    return plait_errorf(err, "%s: out of memory", s->dir);
}

/* -- reading -------------------------------------------------------------- */

static struct plait_dcp_rows rows_at(const struct plait_dcp_place *p,
                                     uint64_t row, uint64_t n)
{
    return (struct plait_dcp_rows){
        .nlead = p->nlead, .lead = {p->lead}, .row = row, .n = n};
}

/* Column c of Plait's tensor is a part of row c of the stored one. */
static int read_transposed(const struct source *s, int index, uint64_t row,
                           uint64_t n, float *out, struct plait_error *err)
{
    const struct plait_hf_tensor *t = &s->tensors[index];
    uint64_t most = PLAIT_CONVERT_CHUNK / t->all, count;
    float *stored;
    int rc = 0;

    most = most < 1 ? 1 : most > t->cols ? t->cols : most;
    stored = malloc(most * t->all * sizeof(*stored));
    if (!stored)
        return no_memory(s, err);
    for (uint64_t c = 0; c < t->cols && rc == 0; c += count) {
        struct plait_dcp_rows rows;

        count = t->cols - c < most ? t->cols - c : most;
        rows = rows_at(&s->places[index], c, count);
        rc =
            plait_dcp_read(s->dcp, s->places[index].tensor, &rows, stored, err);
        for (uint64_t i = 0; i < count && rc == 0; i++)
            for (uint64_t r = 0; r < n; r++)
                out[r * t->cols + c + i] =
                    stored[i * t->all + t->before + row + r];
    }
    free(stored);
    return rc;
}

/* torchtitan's Llama turns neighbours of a head by rotary positions, where
 * transformers and Plait turn its two halves: rows 0, 2, 4 .. of a head come
 * first here, then 1, 3, 5 .. */
static bool is_interleaved(const struct source *s,
                           const struct plait_hf_tensor *t)
{
    const char *dot = strrchr(t->name, '.');

    return s->names.titan && !s->model.qk_norm && dot && dot - t->name > 11 &&
           (!strncmp(dot - 11, "attention.q", 11) ||
            !strncmp(dot - 11, "attention.k", 11));
}

static int read_interleaved(const struct source *s, int index, uint64_t row,
                            uint64_t n, float *out, struct plait_error *err)
{
    const struct plait_hf_tensor *t = &s->tensors[index];
    uint64_t D = (uint64_t)plait_model_head_dim(&s->model);
    uint64_t first = row / D * D, end = (row + n + D - 1) / D * D;
    struct plait_dcp_rows rows = rows_at(&s->places[index], first, end - first);
    float *heads = malloc((end - first) * t->cols * sizeof(*heads));
    int rc;

    if (!heads)
        return no_memory(s, err);
    rc = plait_dcp_read(s->dcp, s->places[index].tensor, &rows, heads, err);
    for (uint64_t i = row; i < row + n && rc == 0; i++) {
        uint64_t k = i % D, from = i - k + k % (D / 2) * 2 + k / (D / 2);

        memcpy(out + (i - row) * t->cols, heads + (from - first) * t->cols,
               t->cols * sizeof(*out));
    }
    free(heads);
    return rc;
}

static int read_rows(const void *from, int index, uint64_t row, uint64_t n,
                     float *out, struct plait_error *err)
{
    const struct source *s = from;
    const struct plait_hf_tensor *t = &s->tensors[index];
    const struct plait_dcp_place *p = &s->places[index];
    struct plait_dcp_rows rows;

    if (t->transposed)
        return read_transposed(s, index, row, n, out, err);
    if (is_interleaved(s, t))
        return read_interleaved(s, index, row, n, out, err);
    if (t->vector) /* whole: it is one row */
        rows = rows_at(p, t->before * t->cols, t->cols);
    else
        rows = rows_at(p, row + t->before + (p->half > 0 ? t->rows : 0), n);
    return plait_dcp_read(s->dcp, p->tensor, &rows, out, err);
}

/* -- what must be there --------------------------------------------------- */

static int check_shape(const struct source *s, int index,
                       struct plait_error *err)
{
    const struct plait_dcp_place *p = &s->places[index];
    const struct plait_dcp_tensor *t = &s->dcp->tensors[p->tensor];
    struct plait_dcp_tensor want = {.ndim = p->nlead};
    char there[128], here[128];
    uint64_t shape[3];
    int ndim = plait_hf_map_shape(&s->tensors[index], shape);

    want.shape[0] = (uint64_t)s->model.experts;
    for (int d = 0; d < ndim; d++)
        want.shape[want.ndim++] = shape[d] * (d == 0 && p->half >= 0 ? 2 : 1);
    if (t->ndim == want.ndim &&
        !memcmp(t->shape, want.shape, (size_t)t->ndim * sizeof(*t->shape)))
        return 0;
    plait_dcp_shape(t, there);
    plait_dcp_shape(&want, here);
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: tensor %.100s is %s, by config.json it must be %s",
                        s->dir, t->name, there, here);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && !strcmp(name + n - m, end);
}

/* What modules keep besides weights, and a head that is the embedding. */
static bool is_spare(const struct source *s, const char *name)
{
    if (!strcmp(name, "lm_head.weight") || !strcmp(name, "output.weight"))
        return s->model.tie_embeddings;
    return ends_with(name, ".rotary_emb.inv_freq") ||
           ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".attn.bias") || !strcmp(name, "freqs_cis");
}

/* Whether a tensor is the model's by its name. Beside a model without a prefix
 * there are the tensors of optimizers and data loaders. */
static bool is_of_model(const struct source *s, const char *name)
{
    static const char *const first[] = {"model.",   "transformer.", "lm_head.",
                                        "layers.",  "norm.",        "output.",
                                        "freqs_cis"};
    size_t n = strlen(s->names.prefix);

    if (n)
        return !strncmp(name, s->names.prefix, n);
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        if (!strncmp(name, first[i], strlen(first[i])))
            return true;
    return false;
}

static int check_others(const struct source *s, const bool *used,
                        struct plait_error *err)
{
    for (int i = 0; i < s->dcp->n; i++) {
        const char *name = s->dcp->tensors[i].name;

        if (used[i] || !is_of_model(s, name) ||
            is_spare(s, name + strlen(s->names.prefix)))
            continue;
        errno = EINVAL;
        return plait_errorf(err,
                            "%s: tensor %.100s does not belong to the model "
                            "that config.json describes",
                            s->dir, name);
    }
    return 0;
}

static int place_tensors(struct source *s, struct plait_error *err)
{
    bool *used = calloc((size_t)s->dcp->n + 1, sizeof(*used));
    int rc = used ? 0 : no_memory(s, err);

    for (int i = 0; i < s->n && rc == 0; i++) {
        struct plait_dcp_place *p = &s->places[i];

        plait_dcp_names_place(s->dcp, &s->names, &s->tensors[i], p);
        errno = EINVAL;
        if (p->tensor < 0) {
            rc = plait_errorf(err,
                              "%s: tensor %s%.100s is missing; config.json "
                              "requires it",
                              s->dir, s->names.prefix, p->name);
            break;
        }
        used[p->tensor] = true;
        rc = check_shape(s, i, err);
        if (rc == 0)
            rc = plait_dcp_check(s->dcp, p->tensor, err);
    }
    if (rc == 0)
        rc = check_others(s, used, err);
    free(used);
    return rc;
}

/* -- a head that should be the embedding ---------------------------------- */

/* 1: any number of the two matrices of one shape differs. */
static int compare(const struct source *s, int a, int b,
                   struct plait_error *err)
{
    const struct plait_dcp_tensor *t = &s->dcp->tensors[a];
    uint64_t cols = t->shape[1], most = PLAIT_CONVERT_CHUNK / cols;
    float *x, *y;
    int rc = 0;

    most = most < 1 ? 1 : most > t->shape[0] ? t->shape[0] : most;
    x = malloc(2 * most * cols * sizeof(*x));
    if (!x)
        return no_memory(s, err);
    y = x + most * cols;
    for (uint64_t row = 0, n; row < t->shape[0] && rc == 0; row += n) {
        struct plait_dcp_rows rows = {.row = row};

        n = t->shape[0] - row < most ? t->shape[0] - row : most;
        rows.n = n;
        if (plait_dcp_read(s->dcp, a, &rows, x, err) < 0 ||
            plait_dcp_read(s->dcp, b, &rows, y, err) < 0)
            rc = -1;
        for (uint64_t i = 0; i < n * cols && rc == 0; i++)
            rc = x[i] != y[i];
    }
    free(x);
    return rc;
}

/* A model that ties its head to the embedding by config.json is tied if both
 * are there and equal, as plait_hf_weights_open() has it. */
static int settle_tie(struct source *s, struct plait_error *err)
{
    static const struct plait_hf_tensor tensors[] = {
        {.name = "head.weight", .hf = "lm_head.weight"},
        {.name = "embedding.weight", .hf = "model.embed_tokens.weight"},
        {.name = "embedding.weight", .hf = "transformer.wte.weight"}};
    bool gpt2 = s->model.family == PLAIT_GPT2;
    struct plait_dcp_place head, embedding;
    const struct plait_dcp_tensor *a, *b;
    int differs;

    if (!s->model.tie_embeddings)
        return 0;
    plait_dcp_names_place(s->dcp, &s->names, &tensors[0], &head);
    plait_dcp_names_place(s->dcp, &s->names, &tensors[1 + gpt2], &embedding);
    if (head.tensor < 0 || embedding.tensor < 0)
        return 0;
    if (plait_dcp_check(s->dcp, head.tensor, err) < 0 ||
        plait_dcp_check(s->dcp, embedding.tensor, err) < 0)
        return -1;
    a = &s->dcp->tensors[head.tensor];
    b = &s->dcp->tensors[embedding.tensor];
    differs = a->ndim != 2 || b->ndim != 2 || a->shape[0] != b->shape[0] ||
              a->shape[1] != b->shape[1];
    if (!differs && a->shape[0] && a->shape[1])
        differs = compare(s, head.tensor, embedding.tensor, err);
    s->untied = differs > 0;
    s->model.tie_embeddings = !s->untied;
    return differs < 0 ? -1 : 0;
}

/* -- the whole ------------------------------------------------------------ */

static int open_source(struct source *s, const char *config,
                       struct plait_error *err)
{
    bool fused;

    if (plait_hf_config_read(config, &s->model, err) < 0)
        return -1;
    errno = EINVAL;
    if (s->model.experts && s->model.mlp_bias)
        return plait_errorf(err,
                            "%s: experts with biases (gpt_oss) are not read "
                            "from checkpoints of torch.distributed; convert "
                            "the folder that transformers writes",
                            s->dir);
    if (s->model.mla_kv || s->model.experts_scores == PLAIT_SCORES_INPUT)
        return plait_errorf(err,
                            "%s: %s is not read from checkpoints of "
                            "torch.distributed; convert the folder that "
                            "transformers writes",
                            s->dir,
                            s->model.mla_kv ? "latent attention (deepseek_v2, "
                                              "deepseek_v3, kimi_k2)"
                                            : "a llama4_text");
    s->dcp = plait_dcp_open(s->dir, err);
    if (!s->dcp ||
        plait_dcp_names_find(s->dcp, s->model.family == PLAIT_GPT2, &s->names,
                             err) < 0 ||
        settle_tie(s, err) < 0)
        return -1;
    fused = !s->names.titan && plait_hf_config_fused(config);
    s->n = plait_hf_map_create(&s->model, fused, &s->tensors);
    s->places = s->n < 0 ? NULL : calloc((size_t)s->n, sizeof(*s->places));
    return s->places ? place_tensors(s, err) : no_memory(s, err);
}

int plait_convert_from_dcp(const char *from, const char *config,
                           const char *dir, struct plait_converted *done,
                           struct plait_error *err)
{
    struct source s = {.dir = from};
    struct plait_convert_source source = {.read = read_rows, .from = &s};
    int rc = open_source(&s, config, err);

    if (rc == 0) {
        source.model = &s.model;
        rc = plait_convert_import_map(&source, s.tensors, s.n, dir, done, err);
    }
    if (rc == 0)
        done->untied = s.untied;
    plait_dcp_close(s.dcp);
    free(s.tensors);
    free(s.places);
    return rc;
}
