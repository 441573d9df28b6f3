/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/megatron_map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The map while it is built. */
struct builder {
    struct plait_megatron_map *map;
    const struct plait_model_config *model;
    const struct plait_hf_tensor **by_name; /* [map->ntensors] */
    int pieces_room, stored_room;
    int t, p;                 /* tp and pp rank of the file */
    char here[40], there[64]; /* prefixes of names */
    bool failed;
};

static bool grow(void *array, int n, int *room, size_t size)
{
    void *old, *more;

    if (n < *room)
        return true;
    memcpy(&old, array, sizeof(old));
    more = realloc(old, ((size_t)*room * 2 + 64) * size);
    if (!more)
        return false;
    memcpy(array, &more, sizeof(more));
    *room = *room * 2 + 64;
    return true;
}

static void add_stored(struct builder *b, const char *name, uint64_t rows,
                       uint64_t cols)
{
    struct plait_megatron_map *m = b->map;
    struct plait_megatron_stored *s;

    if (!grow(&m->stored, m->nstored, &b->stored_room, sizeof(*s))) {
        b->failed = true;
        return;
    }
    s = &m->stored[m->nstored++];
    *s = (struct plait_megatron_stored){.vector = cols == 0,
                                        .rows = rows,
                                        .cols = cols ? cols : 1,
                                        .first = m->npieces};
    snprintf(s->name, sizeof(s->name), "%s%s", b->there, name);
}

static int order_names(const void *a, const void *b)
{
    const struct plait_hf_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* -1: the map has no tensor of that name, which would be a mistake in this
 * file. */
static int find_tensor(const struct builder *b, const char *name)
{
    struct plait_hf_tensor key;
    const struct plait_hf_tensor *at = &key, *const * found;

    snprintf(key.name, sizeof(key.name), "%s%s", b->here, name);
    found = bsearch(&at, b->by_name, (size_t)b->map->ntensors, sizeof(at),
                    order_names);
    return found ? (int)(*found - b->map->tensors) : -1;
}

/* The row at which the next piece of the last stored tensor begins. */
static uint64_t end_of(const struct plait_megatron_map *m)
{
    const struct plait_megatron_stored *s = &m->stored[m->nstored - 1];
    const struct plait_megatron_piece *last;

    if (!s->n)
        return 0;
    last = &m->pieces[s->first + s->n - 1];
    return last->at + last->rows;
}

/* `first`: it is not a copy of a piece that the list has already. */
static void add_piece(struct builder *b, int tensor, bool first,
                      const uint64_t box[4])
{
    struct plait_megatron_map *m = b->map;
    struct plait_megatron_piece *piece;

    if (b->failed || !box[2])
        return;
    if (!grow(&m->pieces, m->npieces, &b->pieces_room, sizeof(*piece))) {
        b->failed = true;
        return;
    }
    piece = &m->pieces[m->npieces];
    *piece = (struct plait_megatron_piece){.tensor = tensor,
                                           .row = box[0],
                                           .col = box[1],
                                           .rows = box[2],
                                           .cols = box[3],
                                           .stored = m->nstored - 1,
                                           .at = end_of(m),
                                           .next = -1};
    if (tensor >= 0 && first) {
        piece->next = m->pieces_of[tensor];
        m->pieces_of[tensor] = m->npieces;
    }
    m->stored[m->nstored - 1].n++;
    m->npieces++;
}

/* Add rows of a matrix, or elements of a vector. */
static void add_rows(struct builder *b, const char *name, uint64_t row,
                     uint64_t n)
{
    int tensor = find_tensor(b, name);
    const struct plait_hf_tensor *t;

    if (tensor < 0) {
        b->failed = true;
        return;
    }
    t = &b->map->tensors[tensor];
    add_piece(b, tensor, true,
              (uint64_t[]){row, 0, n, t->vector ? 1 : t->cols});
}

/* -- what each rank of a tp group has -------------------------------------- */

/* A tensor that all ranks of the group have; `cols` 0: a vector. */
static void add_whole(struct builder *b, const char *there, const char *here,
                      uint64_t rows, uint64_t cols)
{
    int tensor = find_tensor(b, here);

    add_stored(b, there, rows, cols);
    if (tensor < 0)
        b->failed = true;
    add_piece(b, tensor, b->t == 0, (uint64_t[]){0, 0, rows, cols ? cols : 1});
}

/* Each rank has its share of the columns. */
static void add_row_parallel(struct builder *b, const char *there,
                             const char *here, uint64_t rows, uint64_t cols)
{
    int tensor = find_tensor(b, here);
    uint64_t n = cols / (uint64_t)b->map->layout.tp;

    add_stored(b, there, rows, n);
    if (tensor < 0)
        b->failed = true;
    add_piece(b, tensor, true, (uint64_t[]){0, (uint64_t)b->t * n, rows, n});
}

/* Each rank has its share of the rows of each tensor, one tensor after the
 * other. */
static void add_column_parallel(struct builder *b, const char *there,
                                const char *const *here, int n, uint64_t rows,
                                uint64_t cols)
{
    uint64_t share = rows / (uint64_t)b->map->layout.tp;

    add_stored(b, there, (uint64_t)n * share, cols);
    for (int i = 0; i < n; i++)
        add_rows(b, here[i], (uint64_t)b->t * share, share);
}

static void add_vocab(struct builder *b, const char *there, const char *here,
                      bool first)
{
    uint64_t share = (uint64_t)b->map->vocab / (uint64_t)b->map->layout.tp;
    uint64_t C = (uint64_t)b->model->hidden, V = (uint64_t)b->model->vocab;
    uint64_t begin = (uint64_t)b->t * share, n = 0;
    int tensor = find_tensor(b, here);

    if (begin < V)
        n = V - begin < share ? V - begin : share;
    add_stored(b, there, share, C);
    if (tensor < 0)
        b->failed = true;
    add_piece(b, tensor, first, (uint64_t[]){begin, 0, n, C});
    add_piece(b, -1, false, (uint64_t[]){0, 0, share - n, C});
}

/* -- a layer -------------------------------------------------------------- */

/* Transformer Engine stores a norm with the matrix product that follows it. */
static void add_norm(struct builder *b, const char *local, const char *engine,
                     const char *here, bool joined)
{
    static const char *const ends[] = {"weight", "bias"};
    uint64_t C = (uint64_t)b->model->hidden;
    int n = b->model->family == PLAIT_GPT2 ? 2 : 1;
    bool apart = b->map->layout.local || !joined;
    char there[96], name[64];

    for (int i = 0; i < n; i++) {
        snprintf(there, sizeof(there), "%s%s%s", apart ? local : engine,
                 apart ? "." : ".layer_norm_", ends[i]);
        snprintf(name, sizeof(name), "%s.%s", here, ends[i]);
        add_whole(b, there, name, C, 0);
    }
}

static void add_qkv(struct builder *b, const char *end, uint64_t cols)
{
    const struct plait_model_config *m = b->model;
    uint64_t D = (uint64_t)plait_model_head_dim(m), G = (uint64_t)m->kv_heads;
    uint64_t q = (uint64_t)m->heads / G * D;
    uint64_t groups = G / (uint64_t)b->map->layout.tp;
    char there[64], name[3][32];

    snprintf(there, sizeof(there), "self_attention.linear_qkv.%s", end);
    for (int i = 0; i < 3; i++)
        snprintf(name[i], sizeof(name[i]), "attention.%c.%s", "qkv"[i], end);
    add_stored(b, there, groups * (q + 2 * D), cols);
    for (uint64_t g = (uint64_t)b->t * groups; groups-- > 0; g++) {
        add_rows(b, name[0], g * q, q);
        add_rows(b, name[1], g * D, D);
        add_rows(b, name[2], g * D, D);
    }
}

static void add_attention(struct builder *b)
{
    const struct plait_model_config *m = b->model;
    uint64_t C = (uint64_t)m->hidden, D = (uint64_t)plait_model_head_dim(m);
    bool gpt2 = m->family == PLAIT_GPT2;

    add_norm(b, "input_layernorm", "self_attention.linear_qkv",
             "attention_norm", true);
    add_row_parallel(b, "self_attention.linear_proj.weight",
                     "attention.out.weight", C, (uint64_t)m->heads * D);
    if (gpt2)
        add_whole(b, "self_attention.linear_proj.bias", "attention.out.bias", C,
                  0);
    add_qkv(b, "weight", C);
    if (gpt2 || m->attention_bias == PLAIT_BIAS_QKV)
        add_qkv(b, "bias", 0);
    if (gpt2 || !m->qk_norm)
        return;
    add_whole(b, "self_attention.q_layernorm.weight", "attention.q_norm.weight",
              D, 0);
    add_whole(b, "self_attention.k_layernorm.weight", "attention.k_norm.weight",
              D, 0);
}

static void add_experts(struct builder *b)
{
    const struct plait_model_config *m = b->model;
    uint64_t C = (uint64_t)m->hidden, F = (uint64_t)m->ffn;
    char gate[48], up[48], down[48], fc1[64], fc2[64];
    const char *const gated[] = {gate, up};

    add_whole(b, "mlp.router.weight", "router.weight", (uint64_t)m->experts, C);
    for (int e = 0; e < m->experts; e++) {
        snprintf(gate, sizeof(gate), "experts.%d.gate.weight", e);
        snprintf(up, sizeof(up), "experts.%d.up.weight", e);
        snprintf(down, sizeof(down), "experts.%d.down.weight", e);
        snprintf(fc1, sizeof(fc1),
                 "mlp.experts.local_experts.%d.linear_fc1.weight", e);
        snprintf(fc2, sizeof(fc2),
                 "mlp.experts.local_experts.%d.linear_fc2.weight", e);
        add_column_parallel(b, fc1, gated, 2, F, C);
        add_row_parallel(b, fc2, down, C, F);
    }
}

static void add_mlp(struct builder *b)
{
    static const char *const gated[] = {"mlp.gate.weight", "mlp.up.weight"};
    static const char *const bias[] = {"mlp.up.bias"};
    const struct plait_model_config *m = b->model;
    uint64_t C = (uint64_t)m->hidden, F = (uint64_t)m->ffn;
    bool gpt2 = m->family == PLAIT_GPT2;

    add_norm(b, "pre_mlp_layernorm", "mlp.linear_fc1", "mlp_norm", !m->experts);
    if (m->experts) {
        add_experts(b);
        return;
    }
    add_column_parallel(b, "mlp.linear_fc1.weight", gated + gpt2, 2 - gpt2, F,
                        C);
    add_row_parallel(b, "mlp.linear_fc2.weight", "mlp.down.weight", C, F);
    if (!gpt2)
        return;
    add_column_parallel(b, "mlp.linear_fc1.bias", bias, 1, F, 0);
    add_whole(b, "mlp.linear_fc2.bias", "mlp.down.bias", C, 0);
}

/* -- a file --------------------------------------------------------------- */

static void add_file(struct builder *b)
{
    const struct plait_model_config *m = b->model;
    const struct plait_megatron_layout *l = &b->map->layout;
    int layers = m->layers / l->pp;

    b->here[0] = b->there[0] = '\0';
    if (b->p == 0) {
        add_vocab(b, "embedding.word_embeddings.weight", "embedding.weight",
                  true);
        if (m->family == PLAIT_GPT2)
            add_whole(b, "embedding.position_embeddings.weight",
                      "position.weight", (uint64_t)m->seq_len,
                      (uint64_t)m->hidden);
    }
    for (int i = 0; i < layers; i++) { /* each stage counts from 0 */
        snprintf(b->here, sizeof(b->here), "layers.%d.", b->p * layers + i);
        snprintf(b->there, sizeof(b->there), "decoder.layers.%d.", i);
        add_attention(b);
        add_mlp(b);
    }
    b->here[0] = b->there[0] = '\0';
    if (b->p < l->pp - 1)
        return;
    add_norm(b, "decoder.final_layernorm", "", "norm", false);
    if (!m->tie_embeddings)
        add_vocab(b, "output_layer.weight", "head.weight", true);
    else if (l->pp > 1) /* a copy of the first stage's */
        add_vocab(b, "output_layer.weight", "embedding.weight", false);
}

static int add_files(struct builder *b)
{
    struct plait_megatron_map *m = b->map;
    int n = m->ntensors;

    m->first = calloc((size_t)m->nfiles + 1, sizeof(*m->first));
    m->pieces_of = calloc((size_t)n, sizeof(*m->pieces_of));
    b->by_name = calloc((size_t)n, sizeof(*b->by_name));
    if (!m->first || !m->pieces_of || !b->by_name)
        return -1;
    for (int i = 0; i < n; i++) {
        m->pieces_of[i] = -1;
        b->by_name[i] = &m->tensors[i];
    }
    qsort(b->by_name, (size_t)n, sizeof(*b->by_name), order_names);
    for (int file = 0; file < m->nfiles && !b->failed; file++) {
        b->t = file % m->layout.tp;
        b->p = file / m->layout.tp;
        m->first[file] = m->nstored;
        add_file(b);
    }
    m->first[m->nfiles] = m->nstored;
    return b->failed ? -1 : 0;
}

struct plait_megatron_map *
plait_megatron_map_create(const struct plait_model_config *model, int vocab,
                          const struct plait_megatron_layout *layout)
{
    struct plait_megatron_map *map = calloc(1, sizeof(*map));
    struct builder b = {.map = map, .model = model};
    int rc = -1;

    if (!map)
        return NULL;
    map->layout = *layout;
    map->vocab = vocab;
    map->nfiles = layout->tp * layout->pp;
    map->ntensors = plait_hf_map_create(model, false, &map->tensors);
    if (map->ntensors > 0)
        rc = add_files(&b);
    free(b.by_name);
    if (rc == 0)
        return map;
    plait_megatron_map_destroy(map);
    errno = ENOMEM;
    return NULL;
}

void plait_megatron_map_destroy(struct plait_megatron_map *map)
{
    if (!map)
        return;
    free(map->tensors);
    free(map->pieces_of);
    free(map->pieces);
    free(map->stored);
    free(map->first);
    free(map);
}

void plait_megatron_file_name(const struct plait_megatron_layout *l, int file,
                              char name[32])
{
    if (l->pp == 1)
        snprintf(name, 32, "mp_rank_%02d", file % 1000000);
    else
        snprintf(name, 32, "mp_rank_%02d_%03d", file % l->tp, file / l->tp);
}
