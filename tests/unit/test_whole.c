/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "all_ok.h"
#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/optim/whole.h"
#include "runtime/parallel/shard.h"
#include "runtime/train/step.h"

/* Under mpirun: matrices that tp and ZeRO have divided are put together at one
 * owner each, element by element, and the results are returned to all ranks
 * that hold pieces, with no more traffic than the header says. */

struct trial {
    const char *name;
    int tp, cp, ep, dp, pp;
    const char *set[2]; /* more settings */
};

static const struct trial trials[] = {
    {"tp", 4, 1, 1, 1, 1, {"parallel.zero=0"}},
    {"tp and dp", 2, 1, 1, 2, 1, {"parallel.zero=0"}},
    {"tp and ZeRO 1", 2, 1, 1, 2, 1, {"parallel.zero=1"}},
    {"dp", 1, 1, 1, 4, 1, {"parallel.zero=0"}},
    {"ZeRO 2", 1, 1, 1, 4, 1, {"parallel.zero=2"}},
    {"cp and ZeRO 3", 1, 2, 1, 2, 1, {"parallel.zero=3"}},
    {"pp and ZeRO 1", 1, 1, 1, 2, 2, {"parallel.zero=1"}},
    {"tp and experts", 2, 1, 2, 2, 1, {"parallel.zero=0", "model.experts=4"}},
    {"experts and ZeRO 1",
     1,
     1,
     2,
     4,
     1,
     {"parallel.zero=1", "model.experts=4"}},
};

static const char yaml[] =
    "model: {family: llama, layers: 3, hidden: 48, heads: 8, kv_heads: 2,\n"
    "        ffn: 136, vocab: 259, seq_len: 16}\n";

static struct plait_comm *world;

struct setup {
    const struct plait_ops *ops;
    struct plait_job_config *config;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_shards *shards;
    struct plait_whole_piece *piece;
    int npieces;
    enum plait_dtype type;
    int wrong;    /* matrices that were put together wrongly */
    double *load; /* [ranks of the stage] total cost of the rank's matrices */
};

static void fail(const char *what, const struct plait_error *err)
{
    printf("Bail out! %s: %s\n", what, err->text);
    fflush(stdout);
    plait_comm_abort(world);
    exit(1);
}

/* -- values -------------------------------------------------------------- */

/* The values of a whole matrix, and the result made of it: something that no
 * rank could make of a piece alone. */
static float *whole_values(const struct plait_tensor *t)
{
    struct plait_tensor whole = *t;
    float *x;

    memcpy(whole.local_shape, t->shape, sizeof(whole.shape));
    whole.local_first = 0;
    whole.count = t->shape[0] * t->shape[1];
    whole.init_std = 1;
    x = malloc(whole.count * sizeof(*x));
    plait_model_init_tensor(&whole, 11, 0, whole.count, x);
    return x;
}

static float rounded(enum plait_dtype type, float x)
{
    uint16_t h;

    if (type == PLAIT_F32)
        return x;
    plait_ops_ref()->cast(
        NULL, &(struct plait_cast){
                  .to = type, .from = PLAIT_F32, .dst = &h, .src = &x, .n = 1});
    plait_ops_ref()->cast(
        NULL, &(struct plait_cast){
                  .to = PLAIT_F32, .from = type, .dst = &x, .src = &h, .n = 1});
    return x;
}

static float result_of(enum plait_dtype type, const float *x, size_t n,
                       size_t i)
{
    return rounded(type, rounded(type, x[i]) + 2 * rounded(type, x[n - 1 - i]));
}

static int compute(void *arg, int piece, void *matrix)
{
    struct setup *s = arg;
    const struct plait_tensor *t = s->piece[piece].tensor;
    size_t n = t->shape[0] * t->shape[1], i;
    float *want = whole_values(t), *got = malloc(n * sizeof(*got));
    int wrong = 0;

    s->ops->cast(s->mesh->q, &(struct plait_cast){.to = PLAIT_F32,
                                                  .from = s->type,
                                                  .dst = got,
                                                  .src = matrix,
                                                  .n = n});
    for (i = 0; i < n; i++)
        wrong |= got[i] != rounded(s->type, want[i]);
    for (i = 0; i < n; i++)
        got[i] = result_of(s->type, want, n, i);
    s->ops->cast(s->mesh->q, &(struct plait_cast){.to = s->type,
                                                  .from = PLAIT_F32,
                                                  .dst = matrix,
                                                  .src = got,
                                                  .n = n});
    s->wrong += wrong;
    s->load[plait_comm_rank(s->mesh->stage)] +=
        (double)n * (t->shape[0] < t->shape[1] ? t->shape[0] : t->shape[1]);
    free(want);
    free(got);
    return 0;
}

/* The index in the whole matrix of local element i. */
static size_t whole_index(const struct plait_tensor *t, size_t i)
{
    size_t row = i / t->local_shape[1], col = i % t->local_shape[1];

    row += t->tp_axis == 0 ? t->local_first : 0;
    col += t->tp_axis == 1 ? t->local_first : 0;
    return row * t->shape[1] + col;
}

static int results_are_right(const struct setup *s)
{
    int right = 1, p;

    for (p = 0; p < s->npieces; p++) {
        const struct plait_whole_piece *piece = &s->piece[p];
        const struct plait_tensor *t = piece->tensor;
        float *x = whole_values(t);
        size_t n = t->shape[0] * t->shape[1], i;

        for (i = 0; i < piece->count; i++)
            right &= piece->data[i] ==
                     result_of(s->type, x, n, whole_index(t, piece->first + i));
        free(x);
    }
    return right;
}

/* -- one trial ----------------------------------------------------------- */

static void add_piece(struct setup *s, const struct plait_tensor *t)
{
    struct plait_whole_piece *p = &s->piece[s->npieces];
    float *x;
    size_t i;

    if (!plait_shard_slice(&s->shards->shard[t->region], t, &p->first,
                           &p->count))
        return;
    p->tensor = t;
    p->data = s->ops->alloc(s->mesh->dev, p->count * sizeof(*p->data));
    x = whole_values(t);
    for (i = 0; i < p->count; i++)
        p->data[i] = x[whole_index(t, p->first + i)];
    free(x);
    s->npieces++;
}

static void open_trial(struct setup *s, const struct trial *t)
{
    struct plait_layout layout;
    struct plait_error err = {""};
    int i, nset = t->set[1] ? 2 : 1;

    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = t->tp;
    layout.size[PLAIT_CP] = t->cp;
    layout.size[PLAIT_EP] = t->ep;
    layout.size[PLAIT_DP] = t->dp;
    layout.size[PLAIT_PP] = t->pp;
    s->config =
        plait_job_config_parse("test", yaml, strlen(yaml), t->set, nset, &err);
    if (!s->config)
        fail("configuration", &err);
    s->mesh = plait_mesh_create(s->ops, s->ops->device_create(0, 1), world,
                                &layout, &err);
    if (!s->mesh ||
        plait_mesh_need(s->mesh, 1u << PLAIT_GROUP_EXPERT_DP, &err) < 0)
        fail("mesh", &err);
    s->model = plait_model_create(s->config, s->mesh, &err);
    s->shards = s->model ? plait_shards_create(s->model, &err) : NULL;
    if (!s->shards)
        fail("model", &err);
    s->piece = calloc(s->model->ntensors, sizeof(*s->piece));
    s->load = calloc(t->tp * t->cp * t->dp, sizeof(*s->load));
    for (i = 0; i < s->model->ntensors; i++)
        if (s->model->tensors[i].ndim == 2 && s->model->tensors[i].layer >= 0)
            add_piece(s, &s->model->tensors[i]);
}

static void close_trial(struct setup *s)
{
    struct plait_device *dev = s->mesh->dev;

    for (int i = 0; i < s->npieces; i++)
        s->ops->free(dev, s->piece[i].data);
    free(s->piece);
    free(s->load);
    plait_shards_destroy(s->shards);
    plait_model_destroy(s->model);
    plait_mesh_destroy(s->mesh);
    s->ops->device_destroy(dev);
    plait_job_config_destroy(s->config);
}

/* How many elements the ranks of a stage send by the header's formula. */
static double expected_elements(const struct setup *s, const struct trial *t)
{
    double d = t->cp * t->dp, sum = 0;
    int i;

    for (i = 0; i < s->model->ntensors; i++) {
        const struct plait_tensor *x = &s->model->tensors[i];
        double n = (double)x->shape[0] * x->shape[1];
        double cut = (double)t->tp / x->tp_replicas;
        double h = s->shards->zero ? n / (cut * d) : n / cut;
        double all =
            n * (s->shards->zero ? x->tp_replicas : x->tp_replicas * d);

        if (x->ndim == 2 && x->layer >= 0)
            sum += n - h + all - h;
    }
    return sum;
}

/* ZeRO divides regions and not matrices, so an owner may hold more or less of a
 * matrix than its share; without ZeRO the count is exact. */
static int traffic_is_right(const struct setup *s, const struct trial *t,
                            double sent)
{
    double want = expected_elements(s, t) * plait_dtype_size(s->type);

    if (t->ep > 1)
        return 1;
    return s->shards->zero ? sent <= 2.0 * want : sent == want;
}

static void check_balance(const struct setup *s, const struct trial *t)
{
    int size = t->tp * t->cp * t->dp, i;
    double most = 0, sum = 0, largest = 48.0 * 48 * 136;

    plait_comm_host_all_reduce(s->mesh->stage, s->load, size, PLAIT_SUM);
    for (i = 0; i < size; i++) {
        sum += s->load[i];
        most = s->load[i] > most ? s->load[i] : most;
    }
    all_ok(world, most <= sum / size + largest, "no owner has much more work");
}

static void check_trial(const struct trial *t, enum plait_dtype type)
{
    struct setup s = {.ops = plait_ops_cpu(), .type = type};
    struct plait_comm_stats before, after;
    struct plait_whole *whole;
    struct plait_error err = {""};
    double sent;
    char line[128];

    open_trial(&s, t);
    whole = plait_whole_create(s.mesh, type, s.piece, s.npieces, &err);
    if (!whole)
        fail(t->name, &err);
    plait_comm_stats(s.mesh->stage, &before);
    if (plait_whole_run(whole, compute, &s) < 0)
        fail(plait_comm_error(s.mesh->stage), &err);
    plait_comm_stats(s.mesh->stage, &after);
    snprintf(line, sizeof(line), "%s, %s: each owner got its matrices", t->name,
             plait_dtype_name(type));
    all_ok(world, s.wrong == 0, line);
    all_ok(world, results_are_right(&s), "each holder got its results");
    sent = (double)(after.bytes - before.bytes);
    plait_comm_host_all_reduce(s.mesh->stage, &sent, 1, PLAIT_SUM);
    all_ok(world, traffic_is_right(&s, t, sent), "what was sent");
    check_balance(&s, t);
    plait_whole_destroy(whole);
    close_trial(&s);
}

static int fail_on_last(void *arg, int piece, void *matrix)
{
    (void)arg;
    (void)piece;
    (void)matrix;
    errno = EDOM;
    return plait_comm_rank(world) == plait_comm_size(world) - 1 ? -1 : 0;
}

/* The last rank's matrix cannot be computed: all ranks of its stage must learn
 * that. */
static void check_failure(const struct trial *t, enum plait_dtype type)
{
    struct setup s = {.ops = plait_ops_cpu(), .type = type};
    struct plait_error err = {""};
    struct plait_whole *whole;
    char line[128];
    int rc;

    open_trial(&s, t);
    whole = plait_whole_create(s.mesh, type, s.piece, s.npieces, &err);
    if (!whole)
        fail(t->name, &err);
    rc = plait_whole_run(whole, fail_on_last, NULL);
    snprintf(line, sizeof(line), "%s, %s: one rank's failure is everybody's",
             t->name, plait_dtype_name(type));
    all_ok(world, rc < 0 && (errno == EDOM || errno == ECANCELED), line);
    plait_whole_destroy(whole);
    close_trial(&s);
}

/* A matrix of which no rank has one of the pieces. */
static void check_missing(void)
{
    struct setup s = {.ops = plait_ops_cpu()};
    struct plait_error err = {""};
    struct plait_whole *whole;

    open_trial(&s, &trials[0]);
    s.piece[0].count -= plait_comm_rank(world) == 0;
    whole = plait_whole_create(s.mesh, PLAIT_F32, s.piece, s.npieces, &err);
    all_ok(world,
           !whole && (plait_comm_rank(world) == 0
                          ? strstr(err.text, "layers.0.attention") != NULL
                          : err.text[0] == '\0'),
           "a missing element is refused, in one line");
    close_trial(&s);
}

/* -- memory -------------------------------------------------------------- */

/* How many allocations succeed from now on; -1: all. */
static int allowed = -1;
static bool ran_out;

static void *allocate(struct plait_device *dev, size_t bytes)
{
    if (allowed == 0) {
        ran_out = true;
        errno = ENOMEM;
        return NULL;
    }
    allowed -= allowed > 0;
    return plait_ops_cpu()->alloc(dev, bytes);
}

/* Creates a trainer, for which the last rank may make `most` allocations.
 * Whether that was enough; *wrong: some rank has noticed nothing. */
static bool try_trainer(const struct plait_job_config *config,
                        struct plait_mesh *mesh, int most, bool *wrong)
{
    bool last = plait_comm_rank(world) == plait_comm_size(world) - 1;
    struct plait_error err = {""};
    struct plait_trainer *t;
    double short_of;
    int rc;

    allowed = last ? most : -1;
    ran_out = false;
    t = plait_trainer_create(config, mesh, &err);
    rc = plait_error_consensus(world, t ? 0 : -1, &err);
    plait_trainer_destroy(t);
    short_of = ran_out;
    plait_comm_host_all_reduce(world, &short_of, 1, PLAIT_MAX);
    *wrong = (rc < 0) != (short_of > 0);
    if (*wrong && err.text[0])
        diag("%s", err.text);
    return short_of == 0;
}

/* The last rank runs out of memory at each of its allocations in turn: no rank
 * waits for it in a collective that it has not entered. */
static void check_memory(const char *optimizer)
{
    const char *set[] = {optimizer, "train.global_batch=4",
                         "train.micro_batch=1", "parallel.zero=1"};
    struct plait_ops ops = *plait_ops_cpu();
    struct plait_device *dev = ops.device_create(0, 1);
    struct plait_error err = {""};
    struct plait_job_config *config =
        plait_job_config_parse("test", yaml, strlen(yaml), set, 4, &err);
    struct plait_layout layout;
    struct plait_mesh *mesh;
    bool enough = false, wrong = false;
    char line[128];

    if (!config)
        fail("configuration", &err);
    ops.alloc = allocate;
    plait_layout_init(&layout);
    layout.size[PLAIT_DP] = layout.size[PLAIT_PP] = 2;
    mesh = plait_mesh_create(&ops, dev, world, &layout, &err);
    if (!mesh)
        fail("mesh", &err);
    for (int most = 0; !enough && !wrong; most++)
        enough = try_trainer(config, mesh, most, &wrong);
    snprintf(line, sizeof(line), "%s: one rank without memory ends all",
             optimizer);
    all_ok(world, !wrong, line);
    plait_mesh_destroy(mesh);
    ops.device_destroy(dev);
    plait_job_config_destroy(config);
}

int main(void)
{
    struct plait_error err;
    int rank;

    world =
        plait_comm_create(PLAIT_COMM_MPI, plait_ops_cpu(), NULL, NULL, &err);
    if (!world)
        fail("mpi", &err);
    rank = plait_comm_rank(world);
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        check_trial(&trials[i], PLAIT_F32);
        check_trial(&trials[i], PLAIT_BF16_T);
    }
    check_failure(&trials[0], PLAIT_F32);
    check_failure(&trials[3], PLAIT_BF16_T);
    check_failure(&trials[4], PLAIT_F32);
    check_missing();
    check_memory("optim.name=muon");
    check_memory("optim.name=soap");
    check_memory("optim.name=lamb");
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
