/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "model_run.h"
#include "runtime/comm/backend.h"
#include "runtime/parallel/pipeline.h"
#include "topology/base/clock.h"

/* Under mpirun (bubble-mpi.sh): how long the ranks of a pipeline are idle.
 * Schedule, interpreter, model and messages are the real ones. Each rank notes
 * its units of work, the messages that it sends and those that it waits for.
 * From all notes follows when each would have happened if every rank had a
 * machine of its own, forward took one unit, input and weight gradients one
 * each, and messages no time: the idle share does not depend on how busy this
 * machine is.
 *
 * test_bubble SECONDS, the benchmark, sleeps so long in every unit and also
 * measures the idle share. */

#define MICROBATCHES 4
#define NOTES_MOST 256

enum note_kind { WORK, SENT, RECEIVED };

struct note {
    enum note_kind kind;
    int peer, tag;
    double end; /* units since the step began; < 0: not yet known */
};

struct notes {
    int n;
    struct note note[NOTES_MOST];
};

struct pending {
    struct plait_request *req;
    int peer, tag;
};

static struct plait_comm *world;
static const struct plait_ops *cpu;
static const struct plait_comm_vtable *backend; /* of the pipeline's group */
static struct notes mine;
static struct pending pending[NOTES_MOST]; /* messages to wait for */
static double unit;                        /* seconds, 0: no sleep */
static double busy; /* seconds that this rank has slept */

static void add_note(enum note_kind kind, int peer, int tag)
{
    if (mine.n == NOTES_MOST)
        give_up("more notes than expected", NULL);
    mine.note[mine.n++] = (struct note){kind, peer, tag, -1};
}

static int noted_run(struct plait_comm *comm, const struct plait_transfer *t,
                     struct plait_queue *q, struct plait_request **req)
{
    int i = 0, rc = backend->run(comm, t, q, req);

    if (t->kind == PLAIT_SEND)
        add_note(SENT, t->peer, t->tag);
    if (t->kind != PLAIT_RECV)
        return rc;
    while (pending[i].req)
        i++;
    pending[i] = (struct pending){*req, t->peer, t->tag};
    return rc;
}

static int noted_wait(struct plait_request *req, struct plait_queue *q)
{
    int rc = backend->wait(req, q);

    for (int i = 0; i < NOTES_MOST; i++)
        if (pending[i].req == req) {
            add_note(RECEIVED, pending[i].peer, pending[i].tag);
            pending[i].req = NULL;
        }
    return rc;
}

static void work(void)
{
    double start = plait_clock_now();
    struct timespec t = {(time_t)unit, (long)(fmod(unit, 1) * 1e9)};

    add_note(WORK, 0, 0);
    if (unit > 0)
        nanosleep(&t, NULL);
    busy += plait_clock_now() - start;
}

static int attention_forward(struct plait_queue *q,
                             const struct plait_attention_forward *f)
{
    work();
    return cpu->attention_forward(q, f);
}

static int attention_backward(struct plait_queue *q,
                              const struct plait_attention_backward *g)
{
    work();
    return cpu->attention_backward(q, g);
}

/* Counted once per layer, at the one of its four matrices that maps ffn to
 * hidden. */
static int linear_backward_weight(struct plait_queue *q,
                                  const struct plait_linear_dw *l)
{
    if (l->C > l->O && l->O == 48)
        work();
    return cpu->linear_backward_weight(q, l);
}

/* The idle share of a step with p stages of v chunks and m micro-batches whose
 * passes all take equal times (Narayanan et al., SC21; Qi et al., 2023,
 * ZB-H1). */
static double formula(enum plait_schedule_kind kind, int p, int v)
{
    double m = MICROBATCHES;

    if (kind == PLAIT_SCHEDULE_NAIVE)
        return (p - 1.0) / p;
    if (kind == PLAIT_SCHEDULE_ZB_H1)
        return (p - 1) / (3 * m + p - 1);
    return (p - 1) / (v * m + p - 1);
}

/* When rank `r` has done note `i`, which follows another that ended at
 * `before`; < 0: it waits for a message that has not been sent yet. */
static double end_of(const struct notes *all, int r, int i, double before)
{
    const struct note *note = &all[r].note[i];
    const struct notes *peer = &all[note->peer];

    if (note->kind == WORK)
        return before + 1;
    if (note->kind == SENT)
        return before;
    for (int k = 0; k < peer->n; k++)
        if (peer->note[k].kind == SENT && peer->note[k].peer == r &&
            peer->note[k].tag == note->tag)
            return peer->note[k].end < 0 ? -1 : fmax(before, peer->note[k].end);
    return -1;
}

/* The idle share by the notes of all ranks; NAN if a message has no sender. */
static double noted_share(struct notes *all, int p)
{
    int next[8] = {0}, todo = 0, done;
    double now[8] = {0}, last = 0, worked = 0, end;

    for (int r = 0; r < p; r++)
        for (int i = 0; i < all[r].n; i++, todo++)
            worked += all[r].note[i].kind == WORK;
    do {
        done = 0;
        for (int r = 0; r < p; r++)
            while (next[r] < all[r].n &&
                   (end = end_of(all, r, next[r], now[r])) >= 0) {
                now[r] = all[r].note[next[r]++].end = end;
                done++;
            }
        todo -= done;
    } while (done > 0);
    for (int r = 0; r < p; r++)
        last = fmax(last, now[r]);
    return todo == 0 ? 1 - worked / (p * last) : NAN;
}

/* The idle share by the notes and, if units sleep, the measured one. */
static double idle_share(struct run *r, struct plait_pipeline *pipe,
                         const struct plait_batch *batch, double *measured)
{
    struct plait_comm *group = r->mesh.group[PLAIT_GROUP_PP];
    struct plait_comm_vtable noted = *group->vtable;
    int p = plait_comm_size(world);
    struct notes *all = calloc(p, sizeof(*all));
    double start, share;

    backend = group->vtable;
    noted.run = noted_run;
    noted.wait = noted_wait;
    clear_grads(r);
    plait_comm_barrier(world);
    busy = 0;
    mine.n = 0;
    start = plait_clock_now();
    group->vtable = &noted;
    if (plait_pipeline_train(pipe, batch, r->loss) < 0)
        give_up("step", NULL);
    group->vtable = backend;
    plait_comm_barrier(world);
    *measured = 1 - busy / (plait_clock_now() - start);
    plait_comm_host_all_reduce(world, measured, 1, PLAIT_SUM);
    *measured /= p;
    plait_comm_host_all_gather(world, &mine, all, sizeof(mine));
    share = noted_share(all, p);
    free(all);
    return share;
}

static void check_idle(const char *schedule, int v, struct run *r,
                       struct plait_pipeline *pipe,
                       const struct plait_batch *batch, double want)
{
    double measured, idle = idle_share(r, pipe, batch, &measured);

    if (plait_comm_rank(world) > 0)
        return;
    ok(fabs(idle - want) <= 1e-9,
       "%s, %d stages of %d: idle %.3f of a step, %.3f by its formula",
       schedule, plait_comm_size(world), v, idle, want);
    if (unit > 0)
        diag("%s: measured %.3f with %g s a unit", schedule, measured, unit);
}

static void check(enum plait_schedule_kind kind, int v)
{
    static int32_t tokens[4], targets[4];
    int p = plait_comm_size(world);
    struct plait_batch batch[MICROBATCHES];
    struct plait_ops ops = *cpu;
    struct plait_device *dev = ops.device_create(0, 1);
    struct plait_pipeline *pipe;
    struct plait_mesh *mesh;
    struct plait_job_config config;
    struct plait_layout layout;
    struct plait_error err;
    struct run r = {0};

    ops.attention_forward = attention_forward;
    ops.attention_backward = attention_backward;
    ops.linear_backward_weight = linear_backward_weight;
    small_config(&config, PLAIT_GPT2);
    config.model.layers = p * v; /* one layer per chunk */
    config.model.vocab = 16;     /* little real work */
    config.model.seq_len = 4;
    config.train.micro_batch = 1;
    config.parallel.schedule = kind;
    config.parallel.virtual_stages = v;
    plait_layout_init(&layout);
    layout.size[PLAIT_PP] = p;
    layout.size[PLAIT_DP] = 1;
    mesh = plait_mesh_create(&ops, dev, world, &layout, &err);
    if (!mesh)
        give_up("groups", &err);
    r.mesh = *mesh;
    open_model(&r, &config, 1);
    pipe = plait_pipeline_create(r.model, MICROBATCHES,
                                 config.train.micro_batch, &err);
    if (!pipe)
        give_up("pipeline", &err);
    for (int i = 0; i < MICROBATCHES; i++)
        batch[i] = (struct plait_batch){.batch = config.train.micro_batch,
                                        .seq_len = config.model.seq_len,
                                        .tokens = tokens,
                                        .targets = targets,
                                        .loss_scale = 1};
    check_idle(plait_schedule_names[kind], v, &r, pipe, batch,
               formula(kind, p, v));
    plait_pipeline_destroy(pipe);
    close_model(&r);
    plait_mesh_destroy(mesh);
    ops.device_destroy(dev);
}

int main(int argc, char **argv)
{
    struct plait_error err;
    int rank;

    unit = argc > 1 ? atof(argv[1]) : 0;
    cpu = plait_ops_cpu();
    world = plait_comm_create(PLAIT_COMM_MPI, cpu, NULL, NULL, &err);
    if (!world)
        give_up("mpi", &err);
    check(PLAIT_SCHEDULE_NAIVE, 1);
    check(PLAIT_SCHEDULE_GPIPE, 1);
    check(PLAIT_SCHEDULE_1F1B, 1);
    check(PLAIT_SCHEDULE_INTERLEAVED, 2);
    check(PLAIT_SCHEDULE_ZB_H1, 1);
    rank = plait_comm_rank(world);
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
