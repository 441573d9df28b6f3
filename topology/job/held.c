/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/held.h"

#include "topology/job/image_shape.h"
#include "topology/job/model_size.h"
#include "topology/job/tensors.h"

/* Logits are computed for so many bytes of rows at a time: enough for products
 * at full speed, little beside the activations. A GPU needs more: a product
 * whose inner size is only that of the residual stream must occupy all of it,
 * and each run of rows reads and writes the whole gradient of the head. */
#define LOGITS_BYTES (100.0 * 1048576)
#define GPU_LOGITS_BYTES (1024.0 * 1048576)
/* Rows of logits come in multiples of this: on a GPU, of the height of every
 * product's tiles. */
#define CPU_ROWS 16
#define GPU_ROWS 128

static double align_up(double n, double to)
{
    return ceil(n / to) * to;
}

double plait_rank_stream(const struct plait_job_config *c,
                         const struct plait_layout *layout, double rows)
{
    return c->parallel.sequence ? ceil(rows / layout->size[PLAIT_TP]) : rows;
}

/* The most rows that can arrive at the mlp: all tokens of all ep ranks may
 * choose as many experts of this rank as they choose at all, but each expert
 * takes no more than its capacity. With ep 1 dropped choices take rows, too. */
static double mlp_rows(const struct plait_rank_sizes *z)
{
    double most = z->rows * z->ep * fmin(z->top_k, z->here);

    if (!z->experts)
        return z->rows;
    if (z->capacity && z->ep > 1)
        most = fmin(most, z->experts * z->capacity * z->sequences);
    return most;
}

/* In runs of about equal length; plait_head_logits() needs a few rows more than
 * there are ranks. */
static double logit_rows(const struct plait_rank_sizes *z, double all, bool gpu,
                         int tp)
{
    double bytes = gpu ? GPU_LOGITS_BYTES : LOGITS_BYTES;
    double of = gpu ? GPU_ROWS : CPU_ROWS;
    double rows = z->vocab ? floor(bytes / (z->vocab * z->element)) : 0;

    if (rows > of) {
        rows = floor(rows / of) * of;
        rows = align_up(all / ceil(all / rows), of);
    }
    return fmax(fmin(rows, all), 4 + 4.0 * tp);
}

static void set_columns(struct plait_rank_sizes *z,
                        const struct plait_model_config *m, int tp)
{
    struct plait_sides sides;
    const struct plait_side_length *at = sides.at;

    plait_sides_set(&sides, m, tp, 0, true);
    z->hidden = (double)at[PLAIT_SIDE_HIDDEN].here;
    z->head_dim = (double)at[PLAIT_SIDE_HEAD].here;
    z->query = (double)at[PLAIT_SIDE_QUERIES].here;
    z->keys = (double)at[PLAIT_SIDE_KEYS].here;
    z->heads = z->query / z->head_dim;
    z->kv_heads = z->keys / z->head_dim;
    z->kv_copies = at[PLAIT_SIDE_KEYS].copies;
    z->qkv = z->query + 2 * z->keys;
    z->all_keys = (double)at[PLAIT_SIDE_KEYS].whole;
    z->q_latent = (double)at[PLAIT_SIDE_Q_LATENT].here;
    z->kv_latent = (double)at[PLAIT_SIDE_KV_LATENT].here;
    z->rotary = (double)at[PLAIT_SIDE_ROTARY].here;
    z->values = (double)at[PLAIT_SIDE_VALUES].here;
    z->latent_up = (double)at[PLAIT_SIDE_UNTURNED].here + z->values;
    z->gated = m->family == PLAIT_LLAMA;
    z->ffn = (double)at[PLAIT_SIDE_FFN].here;
    z->up = z->gated ? 2 * z->ffn : z->ffn;
    z->vocab = (double)at[PLAIT_SIDE_VOCAB].here;
    z->gradient = fmax(z->hidden, z->qkv);
    if (!m->experts) /* those of experts have no codes */
        z->gradient = fmax(z->gradient, z->up);
    z->shared =
        sides.has & PLAIT_HAS_SHARED ? (double)at[PLAIT_SIDE_SHARED].here : 0;
    z->experts = m->experts;
    z->top_k = m->experts_top_k;
    z->capacity = plait_model_capacity(m);
    z->qk_norm = m->qk_norm;
    z->l2_norm = m->qk_l2_norm;
    z->q_norms = m->qk_norm_whole ? 1 : z->heads;
    z->k_norms = m->qk_norm_whole ? 1 : z->kv_heads;
    z->qk_parts = m->qk_norm && m->qk_norm_whole && tp > 1;
    z->drops_stream = m->dropout > 0;
    z->drops = z->drops_stream || m->attention_dropout > 0;
    z->norms_before = m->norm_place != PLAIT_NORMS_AFTER;
    z->norms_after = m->norm_place != PLAIT_NORMS_BEFORE;
    z->mtp = m->mtp_layers > 0;
    z->classes = m->classes;
    z->sync = m->norm == PLAIT_NORM_SYNC;
    if (plait_model_dense_layers(m) == 0)
        return;
    plait_sides_dense(&sides, m, tp, 0);
    z->dense = (double)at[PLAIT_SIDE_FFN].here;
    z->gradient = fmax(z->gradient, z->gated ? 2 * z->dense : z->dense);
}

void plait_rank_sizes_set(struct plait_rank_sizes *z,
                          const struct plait_job_config *c,
                          const struct plait_layout *layout, double rows,
                          double sequences, bool gpu)
{
    int tp = layout->size[PLAIT_TP];

    memset(z, 0, sizeof(*z));
    set_columns(z, &c->model, tp);
    z->cp = layout->size[PLAIT_CP];
    z->ep = layout->size[PLAIT_EP];
    z->dp = layout->size[PLAIT_DP];
    z->here = c->model.experts / layout->size[PLAIT_EP];
    z->element = plait_precision_size(c->train.precision);
    z->documents = c->data.mask_documents;
    z->windows = false;
    for (int i = 0; i < c->model.layers; i++)
        z->windows |= plait_model_windowed(&c->model, i) ||
                      plait_model_chunked(&c->model, i);
    /* Codes are not kept where weight gradients are deferred: the two products
     * that use a gradient then come at different times. */
    z->codes = gpu && c->train.precision == PLAIT_FP8 &&
               c->parallel.schedule != PLAIT_SCHEDULE_ZB_H1;
    z->sequences = sequences;
    z->stream = plait_rank_stream(c, layout, rows);
    z->rows = c->parallel.sequence ? z->stream * tp : rows;
    z->mlp = mlp_rows(z);
    z->logit_rows = logit_rows(z, rows, gpu, tp);
    z->groups = (double)plait_image_groups(&c->model, (size_t)rows);
    z->message = plait_is_image_model(&c->model)
                     ? rows * plait_image_boundary(&c->model)
                     : z->stream * z->hidden;
}

void plait_rank_sizes_dense(struct plait_rank_sizes *z)
{
    z->mlp = z->rows;
    z->ffn = z->dense;
    z->up = z->gated ? 2 * z->dense : z->dense;
    z->shared = z->experts = z->top_k = z->here = z->capacity = 0;
}

size_t plait_image_groups(const struct plait_model_config *m, size_t images)
{
    return m->norm == PLAIT_NORM_GHOST ? images / (size_t)m->ghost_batch : 1;
}

static void widen(const struct plait_image_piece *p, int chunk, void *arg)
{
    struct plait_rank_sizes *z = arg;

    (void)chunk;
    z->largest = fmax(z->largest, fmax(p->in, p->out));
    for (int i = 0; i < PLAIT_IMAGE_UNITS; i++) {
        const struct plait_image_unit *u = &p->unit[i];

        z->largest = fmax(z->largest, u->rows * u->channels);
        z->norm = fmax(z->norm, u->channels);
    }
    if (p->kind == PLAIT_IMAGE_HEAD)
        z->head = p->matrix[1];
}

void plait_rank_sizes_widest(struct plait_rank_sizes *z,
                             const struct plait_job_config *c, int pp, int rank)
{
    plait_image_visit(c, pp, rank, widen, z);
}

/* -- the table ------------------------------------------------------------- */

double plait_held_codes(double rows, double columns)
{
    double codes = align_up(rows, 16) * align_up(columns, 16);

    return PLAIT_HELD_ALIGN + 2 * plait_held_align(codes);
}

#define BYTES_T(rows, columns) ((rows) * (columns)*z->element)
#define BYTES_WORD(rows, columns) ((rows) * (columns)*4)
#define BYTES_CODES(rows, columns) plait_held_codes(rows, columns)
#define LINE(group, member, rows, columns, type, exists) \
    {PLAIT_HELD_##group, (exists),                       \
     plait_held_align(BYTES_##type(rows, columns))},

void plait_held_list(const struct plait_rank_sizes *z,
                     struct plait_held list[PLAIT_HELD_TENSORS])
{
    const struct plait_held lines[] = {PLAIT_HELD_TABLE(LINE)};

    memcpy(list, lines, sizeof(lines));
}

double plait_held_bytes(const struct plait_held list[PLAIT_HELD_TENSORS],
                        unsigned groups)
{
    double sum = 0;

    for (int i = 0; i < PLAIT_HELD_TENSORS; i++)
        if (list[i].exists && groups >> list[i].group & 1)
            sum += list[i].bytes;
    return sum;
}

unsigned plait_held_kept(enum plait_recompute recompute)
{
    static const unsigned kept[] = {
        [PLAIT_RECOMPUTE_NONE] = PLAIT_HELD_SET(INPUT) | PLAIT_HELD_SET(CHEAP) |
                                 PLAIT_HELD_SET(PRODUCTS),
        [PLAIT_RECOMPUTE_SELECTIVE] =
            PLAIT_HELD_SET(INPUT) | PLAIT_HELD_SET(PRODUCTS),
        [PLAIT_RECOMPUTE_FULL] = PLAIT_HELD_SET(INPUT)};

    return kept[recompute];
}

unsigned plait_held_again(enum plait_recompute recompute)
{
    return plait_held_kept(PLAIT_RECOMPUTE_NONE) & ~plait_held_kept(recompute);
}
