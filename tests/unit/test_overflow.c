/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "model_util.h"
#include "runtime/comm/comm.h"
#include "runtime/train/step.h"
#include "tap.h"
#include "temp_path.h"

/* Under mpirun (overflow-mpi.sh): a gradient that overflows on a single rank
 * makes all ranks skip the step and halve the loss scale. The ranks take turns
 * to be that one; everything else is as in one process. And a number that is
 * not finite is traced to the rank and tensor that had it first; and the ends
 * of a pipeline keep equal copies of a tied embedding. */

enum { STEPS = 4, BAD_STEP = 1, TOKENS = 4096 };

struct layout {
    int tp, cp, dp, pp, zero;
    enum plait_schedule_kind schedule; /* 0: 1F1B */
    bool sequence;
    enum plait_optim_kind optim; /* 0: AdamW */
};

static const struct layout layouts[] = {
    {.tp = 4, .cp = 1, .dp = 1, .pp = 1},
    {.tp = 4, .cp = 1, .dp = 1, .pp = 1, .sequence = true},
    {.tp = 1, .cp = 4, .dp = 1, .pp = 1},
    {.tp = 1, .cp = 1, .dp = 1, .pp = 4},
    {.tp = 1, .cp = 1, .dp = 1, .pp = 4, .schedule = PLAIT_SCHEDULE_ZB_H1},
    {.tp = 1, .cp = 1, .dp = 4, .pp = 1},
    {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .zero = 1},
    {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .zero = 2},
    {.tp = 1, .cp = 1, .dp = 4, .pp = 1, .zero = 3},
    {.tp = 2, .cp = 1, .dp = 2, .pp = 1, .zero = 1},
    {.tp = 1, .cp = 1, .dp = 2, .pp = 2, .zero = 2},
    {.tp = 2, .cp = 1, .dp = 1, .pp = 2},
    {.tp = 1, .cp = 2, .dp = 1, .pp = 2, .zero = 3},
};

static struct plait_comm *world;
static char data[TEMP_PATH];
static struct plait_part data_part = {.path = data, .weight = 1};

/* The results of one run. */
struct outcome {
    double loss[STEPS], scale[STEPS];
    bool skipped[STEPS], held; /* held: no weight changed in the skipped step */
    bool equal;                /* the ends' copies of the tied embedding */
};

/* The real hooks, called by hooks that spoil a gradient. */
struct spoiler {
    struct plait_model *model;
    struct plait_model_hooks real;
    bool armed;
};

static int prefetch(void *arg, struct plait_region *region)
{
    struct spoiler *s = arg;

    return s->real.prefetch ? s->real.prefetch(s->real.arg, region) : 0;
}

static int acquire(void *arg, struct plait_region *region, bool gradient)
{
    struct spoiler *s = arg;

    return s->real.acquire ? s->real.acquire(s->real.arg, region, gradient) : 0;
}

static int release(void *arg, struct plait_region *region)
{
    struct spoiler *s = arg;

    return s->real.release ? s->real.release(s->real.arg, region) : 0;
}

/* A tensor that is sharded over tp: parts that a whole tp group holds must not
 * differ between its ranks. */
static struct plait_tensor *own_tensor(struct plait_model *m, int region)
{
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].region == region && m->tensors[i].tp_replicas == 1)
            return &m->tensors[i];
    return NULL;
}

static int grad_ready(void *arg, struct plait_region *region, int microbatch)
{
    struct spoiler *s = arg;
    struct plait_tensor *t = own_tensor(s->model, region - s->model->regions);

    if (s->armed && region->grad && t) {
        region->grad[t->offset] = INFINITY;
        s->armed = false;
    }
    return s->real.grad_ready(s->real.arg, region, microbatch);
}

static int settle(void *arg)
{
    struct spoiler *s = arg;

    return s->real.settle(s->real.arg);
}

static void interpose(struct spoiler *s, struct plait_model *m)
{
    *s = (struct spoiler){.model = m, .real = m->hooks};
    m->hooks = (struct plait_model_hooks){.prefetch = prefetch,
                                          .acquire = acquire,
                                          .release = release,
                                          .grad_ready = grad_ready,
                                          .settle = settle,
                                          .arg = s};
}

static void give_up(const char *what, const struct plait_error *err)
{
    printf("Bail out! %s: %s\n", what, err->text);
    fflush(stdout);
    plait_comm_abort(world);
    exit(1);
}

/* A number that changes if any master weight of this rank changes. */
static double weigh(struct plait_optim *optim)
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(optim, &s);
    double sum = 0;

    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < s[i].count; k++)
            sum += s[i].master[k] * (double)(1 + k % 97);
    return sum;
}

static void steps(struct plait_trainer *t, bool spoil, struct outcome *o)
{
    struct plait_optim *optim = plait_trainer_optim(t);
    struct plait_error err = {""};
    struct spoiler spoiler;
    double before;

    interpose(&spoiler, plait_trainer_model(t));
    for (int i = 0; i < STEPS; i++) {
        struct plait_step_result r;

        spoiler.armed = spoil && i == BAD_STEP;
        before = weigh(optim);
        if (plait_trainer_step(t, i, 0, &r, &err) < 0)
            give_up("step", &err);
        o->loss[i] = r.loss;
        o->skipped[i] = r.skipped;
        o->scale[i] = plait_trainer_loss_scale(t)->scale;
        if (i == BAD_STEP)
            o->held = weigh(optim) == before;
    }
}

static void configure(struct plait_job_config *c, const struct layout *l)
{
    small_config(c, PLAIT_GPT2);
    c->parallel.zero = l->zero;
    if (l->schedule)
        c->parallel.schedule = l->schedule;
    c->parallel.sequence = l->sequence;
    c->parallel.bucket_mib = 0.01;
    c->train.precision = PLAIT_FP16;
    c->train.global_batch = 8;
    c->train.micro_batch = 1;
    c->train.steps = STEPS;
    c->optim.kind = l->optim;
    c->optim.lr = 1e-3;
    c->optim.betas[0] = 0.9;
    c->optim.betas[1] = 0.95;
    c->optim.eps = 1e-8;
    c->optim.clip = 1;
    c->lr.schedule = PLAIT_LR_CONSTANT;
    c->data.train = (struct plait_parts){1, &data_part};
    c->data.format = PLAIT_DATA_LLMC;
}

/* The report on a step with a number that is not finite; wrong: the number is
 * in a weight of this rank, else once in a gradient. */
static void trace(struct plait_trainer *t, bool bad, bool wrong, char *text,
                  size_t size)
{
    struct plait_model *m = plait_trainer_model(t);
    struct plait_tensor *at = own_tensor(m, m->nregions / 2);
    struct plait_step_result r;
    struct plait_error err = {""};
    struct spoiler spoiler;
    const uint16_t inf = 0x7c00;

    interpose(&spoiler, m);
    spoiler.armed = bad && !wrong;
    if (bad && wrong) {
        memcpy((uint16_t *)m->regions[at->region].weight + at->offset + 5, &inf,
               sizeof(inf));
        plait_model_weights_changed(m, &m->regions[at->region]);
    }
    if (plait_trainer_step(t, 0, 0, &r, &err) < 0 ||
        plait_trainer_trace(t, text, size, &err) < 0)
        give_up("trace", &err);
    m->hooks = spoiler.real;
}

/* All ranks get the same report. */
static void check_trace(struct plait_trainer *t, int bad)
{
    struct plait_model *m = plait_trainer_model(t);
    bool mine = plait_comm_rank(world) == bad;
    char text[400], want[200];
    double wrong;

    trace(t, mine, false, text, sizeof(text));
    if (plait_comm_rank(world) == 0)
        ok(strstr(text, "has only finite numbers") != NULL,
           "a gradient that was wrong once: %s", text);
    trace(t, mine, true, text, sizeof(text));
    snprintf(want, sizeof(want), "weight %s, on rank %d (",
             own_tensor(m, m->nregions / 2)->name, bad);
    wrong = !strstr(text, "inf at element 5 of the ") ||
            !strstr(text, mine ? want : strchr(want, ','));
    plait_comm_host_all_reduce(world, &wrong, 1, PLAIT_SUM);
    if (plait_comm_rank(world) == 0)
        ok(wrong == 0, "a weight of rank %d is wrong: %s", bad, text);
}

/* Whether this rank's copy of the tied embedding is that of the other end. */
static bool has_equal_copies(const struct plait_model *m)
{
    struct plait_comm *ends = m->mesh->embedding;
    bool equal = true;

    for (int i = 0; i < m->ntensors; i++) {
        const struct plait_tensor *t = &m->tensors[i];
        size_t bytes = t->count * sizeof(uint16_t);
        char *both = t->tied ? malloc(2 * bytes) : NULL;

        if (t->tied)
            equal =
                both &&
                plait_comm_host_all_gather(
                    ends, (uint16_t *)m->regions[t->region].weight + t->offset,
                    both, bytes) == 0 &&
                memcmp(both, both + bytes, bytes) == 0;
        free(both);
    }
    return equal;
}

/* bad: the rank whose gradient overflows, one of `ranks`. */
static void run(struct plait_comm *ranks, const struct layout *l, int bad,
                struct outcome *o)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_error err = {""};
    struct plait_layout layout;
    struct plait_job_config config;
    struct plait_mesh *mesh;
    struct plait_trainer *t;

    configure(&config, l);
    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = l->tp;
    layout.size[PLAIT_CP] = l->cp;
    layout.size[PLAIT_DP] = l->dp;
    layout.size[PLAIT_PP] = l->pp;
    mesh = plait_mesh_create(ops, dev, ranks, &layout, &err);
    if (!mesh)
        give_up("groups", &err);
    t = plait_trainer_create(&config, mesh, &err);
    if (!t || plait_optim_init(plait_trainer_optim(t), 1, &err) < 0 ||
        plait_trainer_open_data(t, &err) < 0)
        give_up("trainer", &err);
    if (o)
        steps(t, plait_comm_rank(ranks) == bad, o);
    else
        check_trace(t, bad);
    if (plait_trainer_settle(t, &err) < 0)
        give_up("weights", &err);
    if (o) /* with ZeRO 3 no rank has a whole copy */
        o->equal = !mesh->embedding || l->zero == 3 ||
                   has_equal_copies(plait_trainer_model(t));
    plait_trainer_destroy(t);
    plait_mesh_destroy(mesh);
    ops->device_destroy(dev);
}

/* Whether this rank's results equal those of one process to fp16's rounding. */
static bool agrees(const struct outcome *o, const struct outcome *one)
{
    for (int i = 0; i < STEPS; i++)
        if (o->skipped[i] != (i == BAD_STEP) ||
            o->scale[i] != (i < BAD_STEP ? 65536 : 32768) ||
            !(fabs(o->loss[i] - one->loss[i]) <= 2e-4 * one->loss[i]))
            return false;
    return o->held;
}

static void check(const struct layout *l, const struct outcome *one)
{
    int n = plait_comm_size(world);

    for (int bad = 0; bad < n; bad++) {
        struct outcome o;
        double wrong;

        run(world, l, bad, &o);
        wrong = !agrees(&o, one);
        plait_comm_host_all_reduce(world, &wrong, 1, PLAIT_SUM);
        if (plait_comm_rank(world) == 0)
            ok(wrong == 0,
               "tp %d cp %d dp %d pp %d zero %d: rank %d overflows, %.0f of "
               "%d ranks went another way",
               l->tp, l->cp, l->dp, l->pp, l->zero, bad, wrong, n);
        if (plait_comm_rank(world) == 0 && wrong > 0)
            for (int i = 0; i < STEPS; i++)
                diag("step %d: loss %g, one process %g; scale %g, skipped %d",
                     i, o.loss[i], one->loss[i], o.scale[i], o.skipped[i]);
    }
}

/* ZeRO cuts the embedding's two copies at other elements, and so the blocks of
 * 8-bit moments. */
static void check_tied(void)
{
    const struct layout l = {.tp = 1,
                             .cp = 1,
                             .dp = 2,
                             .pp = 2,
                             .zero = 1,
                             .optim = PLAIT_OPTIM_ADAMW8BIT};
    struct outcome o;
    double wrong;

    run(world, &l, -1, &o);
    wrong = !o.equal;
    plait_comm_host_all_reduce(world, &wrong, 1, PLAIT_SUM);
    if (plait_comm_rank(world) == 0)
        ok(wrong == 0, "adamw8bit: both ends have the same embedding");
}

/* llm.c's format: 256 int32 of header, tokens of 16 bits. */
static void write_tokens(void)
{
    int32_t head[256] = {20240520, 1, TOKENS};
    uint16_t tokens[TOKENS];
    int fd = mkstemp(temp_path(data, "overflow"));

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * i * 7 + i / 3) % 259;
    if (fd < 0 || write(fd, head, sizeof(head)) != sizeof(head) ||
        write(fd, tokens, sizeof(tokens)) != sizeof(tokens))
        exit(1);
    close(fd);
}

int main(void)
{
    const struct layout alone = {.tp = 1, .cp = 1, .dp = 1, .pp = 1};
    struct plait_comm *self;
    struct plait_error err;
    struct outcome one;
    int rank;

    world =
        plait_comm_create(PLAIT_COMM_MPI, plait_ops_cpu(), NULL, NULL, &err);
    self =
        plait_comm_create(PLAIT_COMM_SELF, plait_ops_cpu(), NULL, NULL, &err);
    if (!world || !self)
        give_up("mpi", &err);
    rank = plait_comm_rank(world);
    write_tokens(); /* each rank writes its own copy */
    run(self, &alone, 0, &one);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        check(&layouts[i], &one);
    check_tied();
    run(world, &layouts[0], 2, NULL);
    run(world, &layouts[3], 1, NULL);
    run(world, &layouts[5], 3, NULL);
    unlink(data);
    plait_comm_destroy(self);
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
