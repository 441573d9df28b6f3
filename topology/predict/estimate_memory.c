/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "topology/job/stage.h"
#include "topology/predict/estimate_activations.h"
#include "topology/predict/estimate_comms.h"
#include "topology/predict/estimate_pieces.h"

/* Memory of one pipeline rank. Weights are those of topology/job/tensors.h and
 * activations those of held.h, which the runtime allocates by; what ZeRO and
 * the pipeline add is counted as runtime/parallel (shard.c, zero.c, pipeline.c,
 * gradsync.c) makes it. tests/unit/test_memory.c checks that both agree. */

#define SENDS 4       /* messages of a port that are being sent */
#define PIECE 1048576 /* elements of the optimizer in transfer */
#define CONTEXT 1e9   /* of a GPU, with its libraries */

/* The weights of a rank, cut into ZeRO's parts; elements. */
struct shards {
    double ranks; /* that share the dense weights; 1 without ZeRO */
    double align; /* of a part */
    double wholes, parts;
    double region[PLAIT_KINDS]; /* one of each kind, 0: none */
};

static void set_sizes(const struct plait_shape *s, struct plait_rank_sizes *z)
{
    plait_rank_sizes_set(z, s->c, s->layout, s->tokens, s->c->train.micro_batch,
                         !plait_shape_on_cpu(s));
}

/* --- weights --- */

/* Add `times` regions of `elements`, whole with padding and in parts. */
static void cut(struct shards *w, enum plait_region_kind kind, double elements,
                double ranks, double times)
{
    double count = plait_align_up(elements, PLAIT_REGION_ALIGN);
    double part = plait_align_up(ceil(count / ranks), w->align);

    w->wholes += part * ranks * times;
    w->parts += part * times;
    w->region[kind] = fmax(w->region[kind], part * ranks);
}

/* Of one region; of experts, of each of them. */
static double elements(const struct plait_shape *s, enum plait_region_kind kind)
{
    bool dense = kind == PLAIT_KIND_DENSE;

    return plait_tensors_elements(dense ? &s->dense : &s->sides,
                                  dense ? PLAIT_KIND_LAYER : kind);
}

/* A module that predicts a token further: a layer and more in one region, and
 * its experts. */
static void cut_mtp(const struct plait_shape *s, struct shards *w)
{
    int here = s->m->experts / s->ep;

    cut(w, PLAIT_KIND_MTP,
        elements(s, PLAIT_KIND_LAYER) + elements(s, PLAIT_KIND_MTP), w->ranks,
        1);
    if (here)
        cut(w, PLAIT_KIND_EXPERT, here * elements(s, PLAIT_KIND_EXPERT),
            fmax(w->ranks / s->ep, 1), 1);
}

/* Of a stage, `dense` of whose layers have no experts in a model that has them.
 * w->ranks and ->align are set. */
static void set_shards(const struct plait_shape *s, double layers, double dense,
                       bool embedding, bool head, struct shards *w)
{
    int here = s->m->experts / s->ep;

    layers -= dense;
    if (embedding)
        cut(w, PLAIT_KIND_EMBEDDING, elements(s, PLAIT_KIND_EMBEDDING),
            w->ranks, 1);
    if (layers > 0)
        cut(w, PLAIT_KIND_LAYER, elements(s, PLAIT_KIND_LAYER), w->ranks,
            layers);
    if (layers > 0 && s->m->experts)
        cut(w, PLAIT_KIND_EXPERT, here * elements(s, PLAIT_KIND_EXPERT),
            fmax(w->ranks / s->ep, 1), layers);
    if (dense > 0)
        cut(w, PLAIT_KIND_DENSE, elements(s, PLAIT_KIND_DENSE), w->ranks,
            dense);
    if (head)
        cut(w, PLAIT_KIND_HEAD, elements(s, PLAIT_KIND_HEAD), w->ranks, 1);
    if (head && s->m->mtp_layers)
        cut_mtp(s, w);
}

/* Of so many layers, as many as on average. */
static double average_dense(const struct plait_shape *s, int layers)
{
    return (double)layers * plait_model_dense_layers(s->m) / s->m->layers;
}

static void cut_piece(const struct plait_image_piece *p, int chunk, void *arg)
{
    static const enum plait_region_kind kind[] = {
        [PLAIT_IMAGE_STEM] = PLAIT_KIND_EMBEDDING,
        [PLAIT_IMAGE_RESIDUAL] = PLAIT_KIND_LAYER,
        [PLAIT_IMAGE_DENSE] = PLAIT_KIND_LAYER,
        [PLAIT_IMAGE_HEAD] = PLAIT_KIND_HEAD};
    struct shards *w = arg;

    (void)chunk;
    cut(w, kind[p->kind], plait_shape_image_elements(p), w->ranks, 1);
}

static void set_rank_shards(const struct plait_shape *s, int rank,
                            struct shards *w)
{
    int layers = plait_shape_layers(s, rank);
    double dense = s->c->framework == PLAIT_FRAMEWORK_PLAIT
                       ? plait_shape_dense(s, rank)
                       : average_dense(s, layers);

    if (plait_is_image_model(s->m))
        plait_image_visit(s->c, s->pp, rank, cut_piece, w);
    else
        set_shards(s, layers, dense, rank == 0, rank == s->pp - 1, w);
}

double plait_shape_rank_weights(const struct plait_shape *s, int rank)
{
    struct shards w = {.ranks = 1, .align = PLAIT_REGION_ALIGN};

    set_rank_shards(s, rank, &w);
    return w.wholes;
}

double plait_shape_weights(const struct plait_shape *s, int layers,
                           int embedding, int head)
{
    struct shards w = {.ranks = 1, .align = PLAIT_REGION_ALIGN};

    set_shards(s, layers, average_dense(s, layers), embedding, head, &w);
    return w.wholes;
}

double plait_shape_expert_share(const struct plait_shape *s)
{
    if (!s->m->experts || plait_is_image_model(s->m))
        return 0;
    return (plait_model_moe_layers(s->m) + s->m->mtp_layers) *
           (s->m->experts / s->ep) * elements(s, PLAIT_KIND_EXPERT) /
           plait_shape_weights(s, s->m->layers, s->pp == 1, s->pp == 1);
}

/* Ranks of a node that share weights. */
static double replicas_here(const struct plait_shape *s)
{
    return fmax(1, fmin((double)s->dp * s->cp, s->gpu->per_node / s->tp));
}

double plait_shape_shards(const struct plait_shape *s)
{
    if (!s->c->parallel.zero)
        return 1;
    return s->c->parallel.shard_group == PLAIT_SHARD_NODE
               ? replicas_here(s)
               : (double)s->dp * s->cp;
}

double plait_shape_sharded(const struct plait_shape *s, double weights)
{
    double ranks = plait_shape_shards(s);
    double experts = plait_shape_expert_share(s);

    return weights * ((1 - experts) / ranks + experts / fmax(1, ranks / s->ep));
}

/* --- buffers --- */

/* Boundary tensors of what is received, at most one pass ahead, and of what is
 * being sent, as many for each slot; the ends of the pipeline lack some. */
static double message_bytes(const struct plait_shape *s,
                            const struct plait_rank_sizes *z, int rank,
                            int slots)
{
    int before = s->v - (rank == 0), after = s->v - (rank == s->pp - 1);
    int sends = slots < SENDS ? SENDS / slots * slots : SENDS;
    double m = s->microbatches;
    double buffers = fmin(sends, m * before) + fmin(sends, m * after) +
                     (before > 0) + (after > 0) * (s->v > 1 ? 2 : 1);

    return buffers * z->message * s->element;
}

/* Elements of this many regions of each kind. */
static double regions(const struct shards *w, const int count[PLAIT_KINDS])
{
    double sum = 0;

    for (int kind = 0; kind < PLAIT_KINDS; kind++)
        sum += count[kind] * w->region[kind];
    return sum;
}

/* Elements of so many layers' regions and of those at the ends. */
static double ends_and(const struct shards *w, int layers, int dense)
{
    const int count[PLAIT_KINDS] = {
        [PLAIT_KIND_EMBEDDING] = 1,   [PLAIT_KIND_LAYER] = layers,
        [PLAIT_KIND_EXPERT] = layers, [PLAIT_KIND_HEAD] = 1,
        [PLAIT_KIND_MTP] = 1,         [PLAIT_KIND_DENSE] = dense};

    return regions(w, count);
}

/* Ranks sum what several have of it: of an expert fewer than of a layer, and
 * replicas that never train together sum alone. */
static void drop_unshared(const struct plait_shape *s, struct shards *w)
{
    int ranks = plait_sync_apart(&s->c->sync, 0) ? s->cp : s->dp * s->cp;

    for (int kind = 0; kind < PLAIT_KINDS; kind++)
        if (ranks == (kind == PLAIT_KIND_EXPERT ? s->ep : 1))
            w->region[kind] = 0;
}

/* Whole regions that ZeRO 2 and 3 gather, in buffers of each size. Gradients:
 * estimate_zero.c; those of `sums` are sent. Weights: of the layer at work and
 * the next one; of the ends, one of each. */
static double zero_bytes(const struct plait_shape *s, const struct shards *w,
                         const struct shards *sums, int rank)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    struct plait_zero_count count;
    double sum = 0;

    if (p->zero < 2)
        return 0;
    plait_shape_zero(s, rank, &count);
    sum += 4 * regions(w, count.whole);
    if (p->grad_reduce == PLAIT_GRAD_BF16)
        sum += 2 * regions(sums, count.sums);
    if (p->zero >= 3)
        sum += s->element * (ends_and(w, plait_shape_gathered(s, rank, false),
                                      plait_shape_gathered(s, rank, true)) +
                             plait_shape_gathered_further(s, rank) *
                                 w->region[PLAIT_KIND_EXPERT]);
    return sum;
}

/* Where buckets of `sums` are reduced in bf16: two of the largest, which no
 * layer joins behind the experts of another. Where one rank sums all gradients:
 * the largest region. */
static double sum_bytes(const struct plait_shape *s, const struct shards *sums,
                        int layers, int dense)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    double most = 0, bucket;

    for (int kind = 0; kind < PLAIT_KINDS; kind++)
        most = fmax(most, sums->region[kind]);
    bucket = ends_and(sums, s->m->experts ? 1 : layers - dense, dense);
    if (p->grad_sync == PLAIT_GRAD_BUCKETED)
        bucket = fmin(most + plait_pieces_bucket_bytes(s) / 4, bucket);
    if (p->zero >= 2)
        return 0;
    if (p->grad_sync == PLAIT_GRAD_NAIVE)
        return 4 * most;
    if (p->grad_reduce == PLAIT_GRAD_FP32)
        return 0;
    return 2 * 2 * (p->zero ? most : bucket);
}

/* A sharded tied embedding is gathered on both ends. */
static double tied_bytes(const struct plait_shape *s, const struct shards *w,
                         int rank)
{
    enum plait_region_kind last =
        s->m->tie_embeddings ? PLAIT_KIND_HEAD : PLAIT_KIND_MTP;

    if (!plait_model_shares_table(s->m) || s->pp == 1 || w->ranks == 1 ||
        (rank != 0 && rank != s->pp - 1))
        return 0;
    return 4 * w->region[rank ? last : PLAIT_KIND_EMBEDDING];
}

/* Whether cuDNN keeps the gradients of k and v of each head in 16 bits: its
 * plans for Hopper and B200 do, the A100's do not (tests/gpu/
 * test_cudnn_plans.c). Ada and the Blackwell of workstations are taken to be
 * as the A100, which needs more. */
static bool keeps_halves(const struct plait_gpu_type *gpu)
{
    return gpu->sm >= 90 && gpu->sm < 120;
}

/* What attention's backward keeps until it ends, for each query of a head: of a
 * sequence, or of one of the two pieces that a ring's rank has of it. Both
 * kernels a sum; cuDNN's the gradient of q in fp32, and where heads share keys,
 * those of k and v for each of them. */
static double score_scratch(const struct plait_shape *s)
{
    double rows = s->tokens * s->m->heads / s->tp / (s->cp > 1 ? 2 : 1);
    double head = plait_model_head_dim(s->m), bytes = 4;

    switch (plait_shape_attention_by(s)) {
    case PLAIT_BY_FITTED:
        return 0;
    case PLAIT_BY_CUDNN:
    case PLAIT_BY_CHUNKS:
    case PLAIT_BY_PEAKS:
        bytes += 4 * head;
        if (s->m->kv_heads < s->m->heads)
            bytes += (keeps_halves(s->gpu) ? 4 : 8) * head;
        break;
    case PLAIT_BY_BOTH:
    case PLAIT_BY_OWN:
        break;
    }
    return bytes * rows;
}

static double buffer_bytes(const struct plait_shape *s,
                           const struct plait_rank_sizes *z,
                           const struct shards *w, int rank, int slots)
{
    int layers = plait_shape_layers(s, rank);
    struct shards sums = *w;
    double sum = message_bytes(s, z, rank, slots) + tied_bytes(s, w, rank) +
                 score_scratch(s);

    drop_unshared(s, &sums);
    sum += sum_bytes(s, &sums, layers, plait_shape_dense(s, rank)) +
           zero_bytes(s, w, &sums, rank);
    return sum + (plait_shape_on_cpu(s) ? 0 : CONTEXT);
}

/* One byte a code, both sides padded to multiples of 16, in both orders. */
static double codes(double rows, double columns)
{
    return 2 * plait_align_up(rows, 16) * plait_align_up(columns, 16);
}

bool plait_shape_keeps_codes(const struct plait_shape *s)
{
    return s->c->train.precision == PLAIT_FP8 && s->c->parallel.zero < 3 &&
           !plait_shape_on_cpu(s);
}

static double code_bytes(const struct plait_shape *s,
                         const struct plait_rank_sizes *z, int rank)
{
    double h = s->m->hidden, mlp = codes(z->up, h) + codes(h, z->ffn);
    double up = z->gated ? 2 * z->dense : z->dense;
    int dense = plait_shape_dense(s, rank);
    int layers = plait_shape_layers(s, rank) +
                 (rank == s->pp - 1 ? s->m->mtp_layers : 0);

    if (!plait_shape_keeps_codes(s))
        return 0;
    if (s->m->experts)
        mlp *= z->here;
    if (z->shared > 0)
        mlp += codes((z->gated ? 2 : 1) * z->shared, h) + codes(h, z->shared);
    return layers * (codes(z->qkv, h) + codes(h, z->heads * z->head_dim)) +
           (layers - dense) * mlp + dense * (codes(up, h) + codes(h, z->dense));
}

/* The routers' biases and loads in fp32 (runtime/model/init.c). */
static double exact_bytes(const struct plait_shape *s, int rank)
{
    bool bias = s->sides.has & PLAIT_HAS_BALANCE;
    bool load = s->sides.has & PLAIT_HAS_LOAD;

    if (plait_is_image_model(s->m))
        return 0;
    return 4.0 * (bias + load) * s->m->experts *
           (plait_shape_layers(s, rank) - plait_shape_dense(s, rank) +
            (rank == s->pp - 1 ? s->m->mtp_layers : 0));
}

/* The largest logit of each head (runtime/optim/qk_clip.c). */
static double peak_bytes(const struct plait_shape *s, int rank)
{
    return s->c->optim.qk_clip > 0
               ? 4.0 * s->m->heads / s->tp * plait_shape_layers(s, rank)
               : 0;
}

/* Over how many ranks each weight is sharded; without ZeRO, in how many parts a
 * node's ranks may sum it. */
static void set_sharing(const struct plait_shape *s, struct shards *w)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    double here = replicas_here(s);

    w->ranks = plait_shape_shards(s);
    w->align = PLAIT_REGION_ALIGN;
    if (!p->zero && here < s->dp * s->cp &&
        p->all_reduce != PLAIT_ALL_REDUCE_FLAT &&
        p->grad_sync != PLAIT_GRAD_NAIVE)
        w->align *= here;
}

/* Bytes per weight: the vectors of replicas that train apart, and where a rank
 * trains several learners, the copy of each: weights in fp32 and state. */
static double meeting_bytes(const struct plait_shape *s, double state)
{
    int learners = plait_sync_learners(&s->c->sync);
    double set = s->element == 2 ? state : state + 4;

    return 4 * plait_sync_vectors(&s->c->sync) +
           (learners > 1 ? learners * set : 0);
}

/* A replica's own codes at a meeting, and those of all. */
static double code_exchange_bytes(const struct plait_shape *s, double weights)
{
    const struct plait_sync_config *sync = &s->c->sync;

    if (sync->gradients == PLAIT_SYNC_FP32)
        return 0;
    return (1 + s->dp) * plait_sync_element(sync) *
           plait_sync_room(sync, weights);
}

/* What the arena would save if tokens were sure to spread evenly. */
static double uneven_bytes(const struct plait_shape *s,
                           const struct plait_rank_sizes *z, int rank,
                           int slots)
{
    struct plait_rank_sizes even = *z;

    if (!s->m->experts)
        return 0;
    even.mlp = fmin(z->mlp, z->rows * s->m->experts_top_k);
    return plait_activations_bytes(s, z, rank, slots) -
           plait_activations_bytes(s, &even, rank, slots);
}

double plait_shape_offloaded(const struct plait_shape *s)
{
    struct plait_rank_sizes z;

    if (s->c->framework != PLAIT_FRAMEWORK_PLAIT)
        return plait_shape_foreign_offloaded(s);
    set_sizes(s, &z);
    return plait_activations_offloaded(s, &z, s->longest, 1) /
           plait_shape_largest(s, s->longest);
}

void plait_shape_memory(const struct plait_shape *s, int rank,
                        struct plait_memory *memory)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    bool away = p->offload & PLAIT_OFFLOAD_OPTIMIZER;
    bool image = plait_is_image_model(s->m);
    double state =
        plait_optim_state_bytes(&s->c->optim) +
        ((s->element == 2 || away || plait_optim_is_averaged(&s->c->optim)) &&
                 s->c->optim.masters == PLAIT_MASTERS_FP32
             ? 4
             : 0); /* bytes a weight */
    const struct plait_schedule_form form = plait_shape_schedule(s);
    int slots =
        (image ? plait_schedule_slots : plait_schedule_held)(&form, rank);
    struct shards w = {0};
    struct plait_rank_sizes z;

    if (s->c->framework != PLAIT_FRAMEWORK_PLAIT && !image) {
        plait_shape_foreign_memory(s, rank, memory);
        return;
    }
    set_sizes(s, &z);
    set_sharing(s, &w);
    set_rank_shards(s, rank, &w);
    memory->weights = s->element * (p->zero >= 3 ? w.parts : w.wholes) +
                      code_bytes(s, &z, rank) + exact_bytes(s, rank);
    memory->gradients = 4 * (p->zero >= 2 ? w.parts : w.wholes);
    memory->optimizer = away ? 0 : state * w.parts;
    memory->optimizer +=
        meeting_bytes(s, state) * w.parts + peak_bytes(s, rank);
    memory->optimizer += code_exchange_bytes(s, w.parts);
    memory->optimizer += image ? plait_shape_image_uneven_bytes(s, rank)
                               : plait_shape_uneven_bytes(s, rank);
    memory->activations =
        image ? plait_shape_image_activations(s, &z, rank, slots)
              : plait_activations_bytes(s, &z, rank, slots);
    memory->host = plait_activations_offloaded(s, &z, rank, slots);
    if (away)
        memory->host += state * w.parts + 2 * PIECE * (4 + s->element);
    memory->communicators = plait_shape_communicators(s, rank);
    memory->buffers =
        buffer_bytes(s, &z, &w, rank, slots) + memory->communicators;
    memory->total = memory->weights + memory->gradients + memory->optimizer +
                    memory->activations + memory->buffers;
    memory->worst = memory->total;
    memory->expected =
        memory->total - (image ? 0 : uneven_bytes(s, &z, rank, slots));
}
