/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate_activations.h"

#include "topology/plan/traffic.h"

/* As the arena of runtime/model places them; tests/unit/test_memory.c checks
 * that both agree. */

#define BLOCK 256                /* bytes, of an activation */
#define LOGITS (100 * 1048576.0) /* bytes of logits made at a time */
#define GPU_LOGITS (1024 * 1048576.0)
#define CPU_ROWS 16 /* rows come in multiples of this */
#define GPU_ROWS 128

/* Bytes of n activations, or of n fp32 numbers, as the arena places them. */
static double take(const struct plait_shape *s, double n)
{
    return plait_align_up(n * s->element, BLOCK);
}

static double take_words(double n)
{
    return plait_align_up(4 * n, BLOCK);
}

/* What selective recompute does not keep. */
static double cheap_bytes(const struct plait_shape *s,
                          const struct plait_rank_sizes *z)
{
    return 2 * take(s, z->stream * s->m->hidden) + take(s, z->mlp * z->ffn);
}

static double routed_bytes(const struct plait_shape *s,
                           const struct plait_rank_sizes *z)
{
    double k = s->m->experts_top_k;

    return 2 * take_words(z->rows * s->m->experts) +
           take_words(s->m->experts + 1) + 3 * take_words(z->rows * k) +
           take(s, z->mlp * s->m->hidden) + take(s, z->rows * k * s->m->hidden);
}

/* q and k before their norm. */
static double heads_bytes(const struct plait_shape *s,
                          const struct plait_rank_sizes *z)
{
    double q = z->rows * z->heads, k = z->rows * z->kv_heads;

    return take(s, q * z->head_dim) + take(s, k * z->head_dim) + take_words(q) +
           take_words(k);
}

/* What full recompute does not keep beside that. */
static double products_bytes(const struct plait_shape *s,
                             const struct plait_rank_sizes *z)
{
    return take(s, z->stream * s->m->hidden) + take(s, z->rows * z->qkv) +
           take(s, z->rows * z->heads * z->head_dim) +
           take_words(z->rows * z->heads) + take(s, z->mlp * z->up) +
           (s->m->experts ? routed_bytes(s, z) : 0) +
           (s->m->qk_norm ? heads_bytes(s, z) : 0) + 4 * take_words(z->stream) +
           BLOCK; /* largest magnitudes */
}

/* Gradients that are kept for a deferred weight gradient. */
static double stash_bytes(const struct plait_shape *s,
                          const struct plait_rank_sizes *z)
{
    return 2 * take(s, z->stream * s->m->hidden) + take(s, z->rows * z->qkv) +
           (s->m->experts ? 0 : take(s, z->rows * z->up));
}

/* What is kept of a layer, and may be offloaded. */
static double kept_bytes(const struct plait_shape *s,
                         const struct plait_rank_sizes *z)
{
    enum plait_recompute recompute = s->c->parallel.recompute;
    double sum = take(s, z->stream * s->m->hidden);

    if (recompute == PLAIT_RECOMPUTE_NONE)
        sum += cheap_bytes(s, z);
    if (recompute != PLAIT_RECOMPUTE_FULL)
        sum += products_bytes(s, z);
    return sum;
}

/* Keys, values and their gradients that are sent around a context-parallel
 * group. */
static double ring_bytes(const struct plait_shape *s,
                         const struct plait_rank_sizes *z)
{
    return 5 * take(s, z->rows * 2 * z->kv_heads * z->head_dim) +
           take(s, z->rows / 2 * z->heads * z->head_dim) +
           take_words(z->rows / 2 * z->heads);
}

static double experts_bytes(const struct plait_shape *s,
                            const struct plait_rank_sizes *z)
{
    double k = s->m->experts_top_k;
    double runs = 2.0 * s->c->train.micro_batch * s->m->experts;
    double sum = take(s, z->rows * s->m->experts) + take_words(z->rows * k) +
                 take(s, z->mlp * s->m->hidden);

    if (s->ep > 1)
        sum += take(s, z->rows * k * s->m->hidden);
    if (plait_model_capacity(s->m))
        sum += take_words(z->rows * k);
    if (plait_model_capacity(s->m) && s->cp > 1)
        sum += 2 * take_words(runs) + take_words(s->cp * runs);
    return sum;
}

/* On GPUs: the fp8 codes of the widest gradient, in both orders. None are kept
 * where weight gradients are deferred. */
static double gradient_codes(const struct plait_shape *s,
                             const struct plait_rank_sizes *z)
{
    double most = fmax(s->m->hidden, z->qkv);

    if (s->c->train.precision != PLAIT_FP8 || plait_shape_on_cpu(s) ||
        s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        return 0;
    if (!s->m->experts)
        most = fmax(most, z->up);
    return BLOCK + 2 * plait_align_up(plait_align_up(z->rows, 16) *
                                          plait_align_up(most, 16),
                                      BLOCK);
}

/* What passes from one block to the next, or is recomputed. */
static double passed_bytes(const struct plait_shape *s,
                           const struct plait_rank_sizes *z)
{
    enum plait_recompute recompute = s->c->parallel.recompute;
    int sequence = z->stream != z->rows;
    double h = s->m->hidden;
    double sum = (1 + sequence) * take(s, z->rows * h) +
                 (1 + sequence) * take(s, z->stream * h) + BLOCK +
                 (s->m->experts ? take_words(1) : 0);

    if (recompute != PLAIT_RECOMPUTE_NONE)
        sum += cheap_bytes(s, z);
    if (recompute == PLAIT_RECOMPUTE_FULL)
        sum += products_bytes(s, z);
    if (s->m->kv_heads < s->tp)
        sum += take_words(s->m->kv_heads * z->head_dim * h);
    return sum;
}

/* Work space of one layer at a time. */
static double work_bytes(const struct plait_shape *s,
                         const struct plait_rank_sizes *z)
{
    double sum = take(s, z->rows * z->heads * z->head_dim) +
                 take(s, z->mlp * z->up) + take(s, z->rows * z->qkv) +
                 gradient_codes(s, z);

    if (s->m->family == PLAIT_LLAMA)
        sum += take(s, z->mlp * z->ffn);
    if (s->m->qk_norm)
        sum += take(s, z->rows * z->heads * z->head_dim);
    if (s->cp > 1)
        sum += ring_bytes(s, z);
    if (s->m->experts)
        sum += experts_bytes(s, z);
    return sum;
}

/* Rows whose logits are computed at a time. */
static double logit_rows(const struct plait_shape *s,
                         const struct plait_rank_sizes *z)
{
    double bytes = plait_shape_on_cpu(s) ? LOGITS : GPU_LOGITS;
    double rows = floor(bytes / (z->vocab * s->element));
    double of = plait_shape_on_cpu(s) ? CPU_ROWS : GPU_ROWS;

    if (rows > of) {
        rows = floor(rows / of) * of;
        rows = plait_align_up(z->rows / ceil(z->rows / rows), of);
    }
    return fmax(fmin(rows, z->rows), 4 + 4.0 * s->tp);
}

static double head_bytes(const struct plait_shape *s,
                         const struct plait_rank_sizes *z)
{
    double rows = logit_rows(s, z);

    return 2 * take(s, z->stream * s->m->hidden) + 2 * take_words(z->stream) +
           take(s, rows * z->vocab) + 2 * take_words(rows) +
           take_words(2 * rows);
}

/* What a slot holds on the chunk of the rank that holds the most: `layer` for
 * each of its layers, or `none` where it has no layer, and `head` where it ends
 * with the head. */
static double slot_bytes(const struct plait_shape *s, int rank, double layer,
                         double none, double head)
{
    double most = 0;

    for (int i = 0; i < s->v; i++) {
        int count = plait_shape_chunk(s, rank, i);
        bool last = rank == s->pp - 1 && i == s->v - 1;

        most = fmax(most, (count ? count * layer : none) + last * head);
    }
    return most;
}

double plait_activations_offloaded(const struct plait_shape *s,
                                   const struct plait_rank_sizes *z, int rank,
                                   int slots)
{
    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        return 0;
    return slots * slot_bytes(s, rank, kept_bytes(s, z), 0, 0);
}

double plait_activations_bytes(const struct plait_shape *s,
                               const struct plait_rank_sizes *z, int rank,
                               int slots)
{
    double sum = passed_bytes(s, z), work = work_bytes(s, z), layer = 0, slot;
    double stream = take(s, z->stream * s->m->hidden);

    if (!(s->c->parallel.offload & PLAIT_OFFLOAD_ACTIVATIONS))
        layer += kept_bytes(s, z);
    else if (plait_shape_layers(s, rank))
        sum += 2 * kept_bytes(s, z);
    if (s->c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        layer += stash_bytes(s, z);
    sum += rank == s->pp - 1 ? fmax(work, head_bytes(s, z)) : work;
    slot = (2 + s->c->data.mask_documents) * take_words(z->rows) +
           slot_bytes(s, rank, layer, stream, stream);
    return sum + slots * slot;
}
