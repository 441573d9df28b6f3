/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "model_util.h"
#include "runtime/model/internal.h"
#include "runtime/optim/optim.h"
#include "runtime/parallel/pipeline.h"
#include "tap.h"
#include "topology/job/held.h"
#include "topology/job/model_size.h"
#include "topology/predict/estimate.h"

/* The memory of every pipeline rank as `plait estimate` predicts it, against
 * the runtime's own tables and allocations. */

struct setting {
    enum plait_family family;
    int tp, cp, ep, pp, v, layers, experts, kv_heads, microbatches;
    int dense, dense_ffn, shared; /* model.dense_layers and so on */
    enum plait_scores scores;
    enum plait_balance_over over;
    enum plait_schedule_kind schedule;
    enum plait_recompute recompute;
    bool sequence, tied, documents, drops, mtp;
    double capacity;
    enum plait_precision precision;
    enum plait_offload offload;
    int64_t stages[8];
};

/* The tensors are in one table (topology/job/held.h) for both sides. What each
 * side does by itself is here: slots of chunks, stages without layers,
 * recompute and offload, messages, weights. */
static struct setting settings[] = {
    {.family = PLAIT_GPT2, .pp = 4, .layers = 11, .tied = true},
    {.family = PLAIT_GPT2, .tp = 2, .pp = 2, .documents = true},
    {.family = PLAIT_GPT2, .tp = 2, .pp = 2, .drops = true},
    {.family = PLAIT_LLAMA, .tp = 4, .pp = 2, .sequence = true},
    {.family = RICH_LLAMA,
     .tp = 4,
     .pp = 2,
     .kv_heads = 2,
     .recompute = PLAIT_RECOMPUTE_SELECTIVE,
     .precision = PLAIT_BF16},
    {.family = AFTER_LLAMA,
     .tp = 4,
     .pp = 2,
     .sequence = true,
     .recompute = PLAIT_RECOMPUTE_SELECTIVE},
    {.family = BOTH_LLAMA,
     .pp = 2,
     .recompute = PLAIT_RECOMPUTE_FULL,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    {.family = PLAIT_LLAMA, .pp = 4, .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.family = PLAIT_LLAMA, .pp = 3, .v = 2, .layers = 13, .microbatches = 9},
    {.family = PLAIT_LLAMA, .pp = 4, .v = 5, .layers = 40, .microbatches = 16},
    {.family = PLAIT_LLAMA, .cp = 2, .pp = 1, .experts = 4, .capacity = 1},
    {.family = PLAIT_GPT2, .ep = 2, .tp = 2, .pp = 2, .experts = 4},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .experts = 4,
     .recompute = PLAIT_RECOMPUTE_FULL,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    /* first layers without experts, wider than the others and narrower */
    {.family = PLAIT_LLAMA, .pp = 4, .experts = 4, .dense = 3},
    {.family = PLAIT_LLAMA,
     .tp = 2,
     .ep = 2,
     .pp = 2,
     .experts = 4,
     .dense = 1,
     .dense_ffn = 2000,
     .shared = 1,
     .recompute = PLAIT_RECOMPUTE_SELECTIVE},
    {.family = PLAIT_GPT2,
     .pp = 2,
     .experts = 4,
     .dense = 5,
     .dense_ffn = 1600,
     .recompute = PLAIT_RECOMPUTE_FULL,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .experts = 4,
     .dense = 2,
     .dense_ffn = 52,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    /* routers with biases */
    {.family = PLAIT_LLAMA,
     .tp = 2,
     .pp = 2,
     .experts = 4,
     .dense = 1,
     .scores = PLAIT_SCORES_SIGMOID,
     .precision = PLAIT_BF16},
    /* and loads, in layers of either kind */
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .experts = 4,
     .dense = 1,
     .scores = PLAIT_SCORES_SIGMOID,
     .over = PLAIT_BALANCE_BATCH},
    {.family = PLAIT_GPT2, .pp = 2, .experts = 4, .over = PLAIT_BALANCE_BATCH},
    /* as Llama 4 */
    {.family = PLACED_LLAMA,
     .tp = 2,
     .pp = 2,
     .experts = 4,
     .shared = 1,
     .dense_ffn = 52,
     .scores = PLAIT_SCORES_INPUT},
    {.family = PLACED_LLAMA,
     .pp = 2,
     .ep = 2,
     .experts = 4,
     .shared = 1,
     .scores = PLAIT_SCORES_INPUT,
     .recompute = PLAIT_RECOMPUTE_FULL,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS,
     .precision = PLAIT_BF16},
    /* latent attention */
    {.family = LATENT_LLAMA,
     .pp = 2,
     .tp = 2,
     .recompute = PLAIT_RECOMPUTE_SELECTIVE,
     .sequence = true,
     .precision = PLAIT_BF16},
    {.family = LATENT_LLAMA,
     .pp = 2,
     .tp = 2,
     .cp = 2,
     .experts = 4,
     .dense = 1},
    {.family = LATENT_LLAMA, .pp = 4, .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.family = DIRECT_LLAMA,
     .pp = 2,
     .tp = 4,
     .recompute = PLAIT_RECOMPUTE_FULL},
    /* shared ones that are wider than all others together */
    {.family = PLAIT_LLAMA,
     .tp = 2,
     .pp = 2,
     .experts = 2,
     .shared = 9,
     .recompute = PLAIT_RECOMPUTE_FULL,
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    {.family = PLAIT_LLAMA,
     .pp = 4,
     .experts = 4,
     .shared = 2,
     .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.family = RICH_LLAMA,
     .pp = 4,
     .experts = 4,
     .dense = 8,
     .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .v = 2,
     .experts = 2,
     .dense = 5,
     .dense_ffn = 600,
     .microbatches = 8},
    /* a middle rank that has most layers with experts, but not most layers */
    {.family = PLAIT_LLAMA,
     .pp = 4,
     .layers = 9,
     .experts = 64,
     .dense = 6,
     .stages = {4, 1, 3, 1}},
    /* a module that predicts a token further */
    {.family = PLAIT_GPT2, .pp = 2, .tp = 2, .mtp = true, .tied = true},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .tp = 2,
     .mtp = true,
     .sequence = true,
     .recompute = PLAIT_RECOMPUTE_SELECTIVE},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .cp = 2,
     .mtp = true,
     .experts = 4,
     .dense = 1,
     .shared = 1,
     .scores = PLAIT_SCORES_SIGMOID,
     .recompute = PLAIT_RECOMPUTE_FULL},
    {.family = PLAIT_LLAMA,
     .pp = 2,
     .mtp = true,
     .stages = {5, 3},
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
    {.family = PLAIT_LLAMA,
     .pp = 4,
     .mtp = true,
     .experts = 2,
     .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.family = PLAIT_GPT2, .pp = 4, .stages = {1, 6, 1, 0}, .tied = true},
    {.family = PLAIT_GPT2,
     .pp = 2,
     .stages = {8, 0},
     .offload = PLAIT_OFFLOAD_ACTIVATIONS},
};

static void set(struct setting *s, struct plait_job_config *c,
                struct plait_layout *l)
{
    small_config(c, s->family);
    if (s->stages[0] || s->stages[1])
        c->parallel.stages = (struct plait_numbers){
            .n = s->pp * (s->v ? s->v : 1), .at = s->stages};
    c->model.layers = s->layers ? s->layers : 8;
    c->model.kv_heads = s->kv_heads ? s->kv_heads : c->model.kv_heads;
    c->model.experts = s->experts;
    c->model.dense_layers = s->dense;
    c->model.dense_ffn = s->dense_ffn;
    c->model.shared_experts = s->shared;
    c->model.experts_scores = s->scores;
    c->model.experts_balance_over = s->over;
    c->model.experts_balance = 0.01;
    c->model.experts_capacity = s->capacity;
    c->model.tie_embeddings = s->tied;
    c->model.mtp_layers = s->mtp;
    c->model.seq_len = 64;
    c->parallel.schedule = s->v          ? PLAIT_SCHEDULE_INTERLEAVED
                           : s->schedule ? s->schedule
                                         : PLAIT_SCHEDULE_1F1B;
    c->parallel.virtual_stages = s->v ? s->v : 1;
    c->parallel.recompute = s->recompute;
    c->parallel.sequence = s->sequence;
    c->parallel.offload = s->offload;
    c->train.precision = s->precision;
    c->data.mask_documents = s->documents;
    c->model.dropout = s->drops ? 0.1 : 0;
    c->model.attention_dropout = c->model.dropout;
    plait_layout_init(l);
    l->size[PLAIT_TP] = s->tp ? s->tp : 1;
    l->size[PLAIT_CP] = s->cp ? s->cp : 1;
    l->size[PLAIT_EP] = s->ep ? s->ep : 1;
    l->size[PLAIT_DP] = l->size[PLAIT_EP];
    l->size[PLAIT_PP] = s->pp;
    c->train.global_batch = c->train.micro_batch * l->size[PLAIT_DP] *
                            (s->microbatches ? s->microbatches : 6);
}

/* What the runtime allocates for a pipeline rank: weights (counted only),
 * activations and messages. */
static int build(const struct plait_job_config *c, const struct plait_layout *l,
                 int rank, double *weights, double *working, double *host)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_error err = {""};
    struct plait_mesh mesh = {.ops = ops, .layout = *l};
    struct plait_pipeline *pipe = NULL;
    struct plait_model *m;
    size_t now = 0, pinned = 0;

    mesh.coord.at[PLAIT_PP] = rank;
    mesh.dev = ops->device_create(0, 1);
    m = plait_model_create(c, &mesh, &err);
    if (m)
        pipe = plait_pipeline_create(
            m,
            c->train.global_batch / (c->train.micro_batch * l->size[PLAIT_DP]),
            c->train.micro_batch, &err);
    if (pipe) {
        ops->memory(mesh.dev, &now, NULL);
        ops->pinned_memory(mesh.dev, &pinned, NULL);
        *host = pinned;
        *weights = m->count;
        *working = now;
    } else {
        diag("%s", err.text);
    }
    plait_pipeline_destroy(pipe);
    plait_model_destroy(m);
    ops->device_destroy(mesh.dev);
    return pipe ? 0 : -1;
}

static bool has_layers(const struct setting *s, int rank)
{
    return s->v || s->stages[rank] || !(s->stages[0] || s->stages[1]);
}

static void compare(int i, struct setting *s)
{
    double weights = 0, working = 0, host = 0, most = 0, last;
    struct plait_gpu_type cpu;
    struct plait_estimate e;
    struct plait_job_config c;
    struct plait_layout l;
    int same = 1, close = 1;

    plait_gpu_type_find("cpu", &cpu, NULL);
    set(s, &c, &l);
    for (int rank = 0; rank < s->pp; rank++) {
        struct plait_memory memory;
        struct plait_error err;

        if (plait_estimate_memory(&c, &l, &cpu, rank, &memory, &err) < 0 ||
            build(&c, &l, rank, &weights, &working, &host) < 0) {
            ok(0, "setting %d: %s", i, err.text);
            return;
        }
        last = memory.activations + memory.buffers;
        same &= memory.gradients == 4 * weights;
        /* interleaving may have a message more or less */
        close &= fabs(last - working) <= (s->v ? 0.02 : 0) * working;
        close &= memory.host == host &&
                 (host > 0) == (s->offload && has_layers(s, rank));
        if (memory.gradients != 4 * weights || last != working)
            diag("rank %d: %.0f weights, %.0f said; %.0f bytes, %.0f said",
                 rank, weights, memory.gradients / 4, working, last);
        most = fmax(most, memory.total);
    }
    ok(same, "setting %d: weights of every rank are the runtime's", i);
    ok(close, "setting %d: activations and messages, too", i);
    ok(plait_estimate(&c, &l, &cpu, &e, NULL) == 0 && e.memory.total == most,
       "setting %d: the estimate is of the fullest rank, %d", i, e.fullest);
}

/* adamw8bit keeps fp32 moments of an embedding that both ends have. */
static void compare_tied(void)
{
    struct setting s = {.family = PLAIT_GPT2, .pp = 2};
    struct plait_memory apart, tied;
    struct plait_gpu_type cpu;
    struct plait_job_config c;
    struct plait_layout l;
    struct plait_error err;
    double table, more;
    int same = 1;

    plait_gpu_type_find("cpu", &cpu, NULL);
    set(&s, &c, &l);
    c.optim.kind = PLAIT_OPTIM_ADAMW8BIT;
    c.parallel.zero = 1;
    l.size[PLAIT_DP] = 2;
    table = (double)c.model.vocab * c.model.hidden;
    for (int rank = 0; rank < 2; rank++) {
        c.model.tie_embeddings = false;
        same &= plait_estimate_memory(&c, &l, &cpu, rank, &apart, &err) == 0;
        c.model.tie_embeddings = true;
        same &= plait_estimate_memory(&c, &l, &cpu, rank, &tied, &err) == 0;
        more = rank ? table : table + c.model.seq_len * c.model.hidden;
        same &= tied.optimizer - apart.optimizer == (6 - 8.0 / 256) * more / 2;
    }
    ok(same, "adamw8bit: 8 bytes for each weight of a tied embedding");
}

/* Moments of bf16 take half of the bytes, wherever they are. */
static void compare_moments(void)
{
    struct setting s = {.family = PLAIT_LLAMA, .pp = 1};
    struct plait_memory wide, narrow;
    struct plait_gpu_type cpu;
    struct plait_job_config c;
    struct plait_layout l;
    struct plait_error err;
    double weights = 0;
    int same = 1;

    plait_gpu_type_find("cpu", &cpu, NULL);
    set(&s, &c, &l);
    c.parallel.zero = 1;
    l.size[PLAIT_DP] = 2;
    same &= plait_estimate_memory(&c, &l, &cpu, 0, &wide, &err) == 0;
    weights = wide.gradients / 4;
    c.optim.moments = PLAIT_MOMENTS_BF16;
    same &= plait_estimate_memory(&c, &l, &cpu, 0, &narrow, &err) == 0;
    same &= fabs((wide.optimizer - narrow.optimizer) / (4 * weights / 2) - 1) <
            0.01;
    ok(same, "moments of bf16: 4 bytes of a weight instead of 8");
}

/* Bytes of a weight that a step moves, of 32 with AdamW in fp32 on CPUs, and of
 * 34 in bf16: gradient and norm, twice the states, the master twice, the weight
 * where it is apart. */
static void compare_moved(void)
{
    static const struct {
        const char *what;
        enum plait_optim_kind kind;
        double momentum;
        enum plait_moments moments;
        enum plait_masters masters;
        double bytes;
    } rows[] = {
        {"adamw", PLAIT_OPTIM_ADAMW, 0, PLAIT_MOMENTS_FP32, 0, 34},
        {"adamw, moments in bf16", PLAIT_OPTIM_ADAMW, 0, PLAIT_MOMENTS_BF16, 0,
         26},
        {"adamw without masters", PLAIT_OPTIM_ADAMW, 0, PLAIT_MOMENTS_FP32,
         PLAIT_MASTERS_BF16, 28},
        {"lion", PLAIT_OPTIM_LION, 0, PLAIT_MOMENTS_FP32, 0, 26},
        {"lion, moments in bf16", PLAIT_OPTIM_LION, 0, PLAIT_MOMENTS_BF16, 0,
         22},
        {"sgd without momentum", PLAIT_OPTIM_SGD, 0, PLAIT_MOMENTS_FP32, 0, 18},
    };
    struct setting s = {.family = PLAIT_LLAMA, .pp = 1};
    struct plait_estimate first, e;
    struct plait_gpu_type cpu;
    struct plait_job_config c;
    struct plait_layout l;
    struct plait_error err = {""};

    plait_gpu_type_find("cpu", &cpu, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set(&s, &c, &l);
        c.train.precision = PLAIT_BF16;
        c.optim.kind = rows[i].kind;
        c.optim.momentum = rows[i].momentum;
        c.optim.moments = rows[i].moments;
        c.optim.masters = rows[i].masters;
        memset(&e, 0, sizeof(e));
        plait_estimate(&c, &l, &cpu, i ? &e : &first, &err);
        e = i ? e : first;
        ok(fabs(e.optimizer_s / first.optimizer_s * 34 - rows[i].bytes) < 1e-6,
           "%s: a step moves %g bytes of a weight", rows[i].what,
           rows[i].bytes);
    }
}

/* schedulefree's weights in fp32 are beside their masters: these take memory,
 * and to write them takes time. */
static void compare_average(void)
{
    struct setting s = {.family = PLAIT_LLAMA, .pp = 1};
    struct plait_estimate usual, average;
    struct plait_gpu_type cpu;
    struct plait_job_config c;
    struct plait_layout l;
    struct plait_error err = {""};
    int rc;

    plait_gpu_type_find("cpu", &cpu, NULL);
    set(&s, &c, &l);
    c.parallel.zero = 1;
    l.size[PLAIT_DP] = 2;
    rc = plait_estimate(&c, &l, &cpu, &usual, &err);
    c.optim.kind = PLAIT_OPTIM_SCHEDULEFREE;
    rc |= plait_estimate(&c, &l, &cpu, &average, &err);
    ok(rc == 0 && average.memory.weights == usual.memory.weights &&
           average.memory.optimizer * 8 == usual.memory.optimizer * 12,
       "schedulefree in fp32: 12 bytes of a weight where adamw has 8");
    ok(rc == 0 &&
           fabs(average.optimizer_s / usual.optimizer_s * 32 - 36) < 1e-9,
       "and 36 bytes to move in a step, not 32");
}

/* What muon allocates for a model with its weights, against the estimate. */
static void compare_muon(int shared)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct setting s = {
        .family = PLAIT_LLAMA, .pp = 1, .experts = 2, .shared = shared};
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_error err = {""};
    struct plait_comm *world =
        plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, &err);
    struct plait_optim *optim = NULL;
    struct plait_memory memory = {0};
    struct plait_mesh *mesh;
    struct plait_gpu_type cpu;
    struct plait_job_config c;
    struct plait_model *m = NULL;
    struct plait_layout l;
    size_t now = 0;
    double said;

    plait_gpu_type_find("cpu", &cpu, NULL);
    set(&s, &c, &l);
    c.optim.kind = PLAIT_OPTIM_MUON;
    mesh = plait_mesh_create(ops, dev, world, &l, &err);
    if (mesh && plait_mesh_need(mesh, ~0u, &err) == 0)
        m = plait_model_create(&c, mesh, &err);
    optim = m ? plait_optim_create(m, &err) : NULL;
    ops->memory(dev, &now, NULL);
    plait_estimate_memory(&c, &l, &cpu, 0, &memory, &err);
    said = memory.weights + memory.gradients + memory.optimizer;
    ok(optim && fabs(said / now - 1) < 1e-3,
       "muon with %d shared experts: %.0f bytes said, %.0f allocated %s",
       shared, said, (double)now, err.text);
    plait_optim_destroy(optim);
    plait_model_destroy(m);
    plait_mesh_destroy(mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
}

/* Shared experts without a gate, which other software has in gpt2 models. */
static void compare_ungated(void)
{
    struct plait_held list[PLAIT_HELD_TENSORS];
    struct setting s = {.family = PLAIT_GPT2, .pp = 1, .experts = 4};
    struct plait_memory memory[2];
    struct plait_gpu_type gpu;
    struct plait_job_config c;
    struct plait_rank_sizes z;
    struct plait_layout l;
    struct plait_error err = {""};
    double pre[2], weights[2], wide;
    int rc = 0;

    plait_gpu_type_find("h100", &gpu, NULL);
    set(&s, &c, &l);
    c.framework = PLAIT_FRAMEWORK_MEGATRON;
    c.train.precision = PLAIT_BF16;
    wide = 2.0 * c.model.ffn;
    for (int i = 0; i < 2; i++) {
        c.model.shared_experts = 2 * i;
        plait_rank_sizes_set(&z, &c, &l, 1024, 1, true);
        plait_held_list(&z, list);
        pre[i] = plait_held_bytes(list, PLAIT_HELD_SET(PRODUCTS));
        weights[i] = plait_model_parameters(&c.model);
        rc |= plait_estimate_memory(&c, &l, &gpu, 0, &memory[i], &err);
    }
    ok(pre[1] - pre[0] == 1024 * wide * z.element,
       "gpt2's shared experts put out one number a column");
    wide *= 2.0 * c.model.layers * c.model.hidden;
    ok(weights[1] - weights[0] == wide, "and have two matrices");
    ok(rc == 0 && memory[1].weights - memory[0].weights == 2 * wide,
       "of two bytes each: %.0f more for %.0f %s",
       memory[1].weights - memory[0].weights, wide, err.text);
}

/* Image models: YAML text, pp and dp. */
struct image_setting {
    const char *text;
    int pp, dp;
};

static const struct image_setting images[] = {
    {"model: {family: mlp, layers: 0, classes: 1, loss: squared}", 1, 1},
    {"model: {family: mlp, layers: 5, width: 33, input: [3, 9, 8]}", 3, 1},
    {"model: {family: resnet, depth: 14, norm: ghost, ghost_batch: 2, "
     "input: [3, 16, 16]}",
     2, 2},
    {"model: {family: resnet, norm: sync, input: [3, 8, 8]}", 1, 4},
    {"model: {family: resnet, depth: 50, width: 4, input: [1, 40, 41]}", 2, 1},
};

/* Whether estimate and runtime count the same weights and FLOPs of a model. */
static int is_same_model(const struct plait_job_config *c, double flops,
                         double *masked)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_mesh mesh = {.ops = ops};
    struct plait_error err = {""};
    struct plait_model *m;
    int same;

    plait_layout_init(&mesh.layout);
    for (int i = 0; i < PLAIT_NAXES; i++)
        mesh.layout.size[i] = 1;
    mesh.dev = ops->device_create(0, 1);
    m = plait_model_create(c, &mesh, &err);
    same = m && (double)m->parameters == plait_model_parameters(&c->model) &&
           fabs(plait_model_flops_per_token(m) / flops - 1) < 1e-12;
    *masked = m ? plait_model_flops_masked(m) : -1;
    plait_model_destroy(m);
    ops->device_destroy(mesh.dev);
    return same;
}

static void compare_images(const struct image_setting *s)
{
    double weights = 0, working = 0, host = 0, masked;
    struct plait_gpu_type cpu;
    struct plait_estimate e;
    struct plait_error err = {""};
    struct plait_job_config *c;
    struct plait_layout l;
    char text[400];
    int same = 1;

    snprintf(text, sizeof(text),
             "%s\ntrain: {global_batch: 48, micro_batch: 4}\n", s->text);
    c = plait_job_config_parse("test", text, strlen(text), NULL, 0, &err);
    plait_gpu_type_find("cpu", &cpu, NULL);
    plait_layout_init(&l);
    for (int i = 0; i < PLAIT_NAXES; i++)
        l.size[i] = 1;
    l.size[PLAIT_PP] = s->pp;
    l.size[PLAIT_DP] = s->dp;
    for (int rank = 0; c && rank < s->pp; rank++) {
        struct plait_memory memory;

        same &= plait_estimate_memory(c, &l, &cpu, rank, &memory, &err) == 0 &&
                build(c, &l, rank, &weights, &working, &host) == 0 &&
                memory.gradients == 4 * weights &&
                memory.activations + memory.buffers == working;
        if (!same)
            diag("rank %d: %.0f weights, %.0f said; %.0f bytes, %.0f said %s",
                 rank, weights, memory.gradients / 4, working,
                 memory.activations + memory.buffers, err.text);
    }
    ok(c && same, "%s pp %d: weights, activations and messages", s->text,
       s->pp);
    memset(&e, 0, sizeof(e));
    same = c && plait_estimate(c, &l, &cpu, &e, &err) == 0;
    ok(same && is_same_model(c, e.flops_per_token, &masked) && masked == 0 &&
           e.step_s > 0 && isfinite(e.step_s) && isfinite(e.mfu),
       "parameters and FLOPs, too; %.3g s a step %s", e.step_s, err.text);
    plait_job_config_destroy(c);
}

/* MFU of the estimate and of the run's metrics are of the same FLOPs. */
static void compare_texts(void)
{
    static const char *const models[] = {
        "{family: gpt2, layers: 2, hidden: 32, heads: 2}",
        "{family: llama, layers: 3, hidden: 32, heads: 4, kv_heads: 2}",
        "{family: llama, layers: 4, hidden: 32, heads: 2, sliding_window: 16, "
        "full_attention_every: 2}",
    };

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct plait_error err = {""};
        struct plait_job_config *c;
        struct plait_gpu_type cpu;
        struct plait_estimate e;
        struct plait_layout l;
        double masked = 0;
        char text[400];

        snprintf(text, sizeof(text),
                 "model: %.*s, vocab: 100, seq_len: 64}\n"
                 "train: {global_batch: 4, micro_batch: 4}\n",
                 (int)strlen(models[i]) - 1, models[i]);
        c = plait_job_config_parse("test", text, strlen(text), NULL, 0, &err);
        plait_gpu_type_find("cpu", &cpu, NULL);
        plait_layout_init(&l);
        for (int axis = 0; axis < PLAIT_NAXES; axis++)
            l.size[axis] = 1;
        ok(c && plait_estimate(c, &l, &cpu, &e, &err) == 0 &&
               is_same_model(c, e.flops_per_token, &masked) &&
               fabs(masked / e.flops_per_token + e.mfu_causal / e.mfu - 1) <
                   1e-12,
           "%s: FLOPs, and those that the mask leaves out %s", models[i],
           err.text);
        plait_job_config_destroy(c);
    }
}

/* Kernels write codes of gradients where the table has room for them. */
static void compare_codes(void)
{
    int same = 1;

    for (int rows = 1; rows < 40; rows++)
        for (int columns = 1; columns < 40; columns++)
            same &= plait_held_codes(rows, columns) ==
                    (double)plait_fp8_bytes(rows, columns);
    ok(same && plait_held_codes(1e5, 28672) ==
                   (double)plait_fp8_bytes(100000, 28672),
       "codes in fp8: what kernels write is what a rank holds");
}

int main(void)
{
    int n = sizeof(settings) / sizeof(settings[0]);

    for (int i = 0; i < n; i++)
        compare(i, &settings[i]);
    compare_tied();
    compare_moments();
    compare_moved();
    compare_average();
    compare_codes();
    compare_muon(0);
    compare_muon(9);
    compare_ungated();
    compare_texts();
    n = sizeof(images) / sizeof(images[0]);
    for (int i = 0; i < n; i++)
        compare_images(&images[i]);
    return done_testing();
}
