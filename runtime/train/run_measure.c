/* SPDX-License-Identifier: Apache-2.0 */
/* What a run measures of itself between steps: communication, stages, nodes,
 * and ranks that are slower than others with the same work.
 *
 * Communicators count bytes and waits from their beginning; here each number of
 * a step is the difference of two readings. What ranks wait for each other
 * outside of steps, as in a comparison of their times, must not count for the
 * next step: plait_run_measure_skip() takes a new reading then.
 *
 * A rank's own time in a step is the step less its waits. Steps as such take
 * equally long on all ranks, as they wait for the slowest one. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/parallel/shard.h"
#include "runtime/train/run_private.h"
#include "topology/base/clock.h"

/* Of a node's id, 52 bits count, which a double holds exactly. */
int plait_run_measure_create(struct run *r, struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;

    r->measure.straggler.rank = -1;
    r->measure.nodes = calloc(mesh->world_size, sizeof(*r->measure.nodes));
    if (!r->measure.nodes)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(r->world, r->measure.nodes ? 0 : -1, err) < 0)
        return -1;
    r->measure.nodes[mesh->rank] = mesh->node & 0xfffffffffffff;
    if (plait_comm_host_all_reduce(r->world, r->measure.nodes, mesh->world_size,
                                   PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

void plait_run_measure_destroy(struct run *r)
{
    free(r->measure.stage_bytes);
    free(r->measure.nodes);
}

const double *plait_run_measure_nodes(const struct run *r)
{
    return r->measure.nodes;
}

void plait_run_measure_skip(struct run *r)
{
    plait_comm_stats(r->world, &r->measure.control);
}

void plait_run_measure_comm(struct run *r, struct plait_metrics *m)
{
    struct plait_mesh *mesh = r->s->mesh;
    struct plait_comm_stats now_sent;

    plait_comm_stats(r->world, &now_sent);
    m->comm_s = now_sent.wait_s - r->measure.control.wait_s;
    m->comm_hidden_s = 0;
    r->measure.control = now_sent;
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = plait_mesh_comm(mesh, i);

        now_sent = (struct plait_comm_stats){0};
        if (comm)
            plait_comm_stats(comm, &now_sent);
        m->comm_bytes[i] = now_sent.bytes - r->measure.sent[i].bytes;
        m->comm_wait[i] = now_sent.wait_s - r->measure.sent[i].wait_s;
        m->comm_s += m->comm_wait[i];
        m->comm_hidden_s += now_sent.hidden_s - r->measure.sent[i].hidden_s;
        r->measure.sent[i] = now_sent;
    }
}

int plait_run_measure_stages(struct run *r, struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;
    int pp = mesh->layout.size[PLAIT_PP];
    size_t now, peak;

    if (r->measure.stage_bytes)
        return 0;
    r->measure.stage_bytes = calloc(pp, sizeof(*r->measure.stage_bytes));
    if (!r->measure.stage_bytes)
        return plait_errorf(err, "out of memory");
    mesh->ops->memory(mesh->dev, &now, &peak);
    r->measure.stage_bytes[mesh->coord.at[PLAIT_PP]] = now;
    if (plait_comm_host_all_reduce(r->world, r->measure.stage_bytes, pp,
                                   PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

/* Steps between two comparisons of the ranks. They are more with many ranks,
 * because rank 0 alone sends the times of all to each. */
static int compared_every(const struct run *r)
{
    return r->s->mesh->world_size > 1024 ? PLAIT_STRAGGLER_STEPS : 10;
}

static void name_straggler(struct run *r)
{
    const struct plait_straggler *who = &r->measure.straggler;
    char where[96];

    plait_hang_where(r->s->hang, who->rank, where, sizeof(where));
    fprintf(stderr,
            "plait-train: rank %d (%s) computes %.2f times as long as the "
            "median of the ranks with the same work, since step %" PRId64 "\n",
            who->rank, where, r->measure.rank_times.ratio, who->since + 1);
}

/* times[n] of all ranks; rank 0 reports a straggler. */
static int judge_times(struct run *r, const float *times)
{
    const struct plait_mesh *mesh = r->s->mesh;
    int n = mesh->world_size, rc, *stage = calloc((size_t)n, sizeof(*stage));
    struct plait_coord coord;

    if (!stage)
        return -1;
    for (int i = 0; i < n; i++) {
        plait_layout_coord(&mesh->layout, i, &coord);
        stage[i] = coord.at[PLAIT_PP];
    }
    rc = plait_rank_times(times, stage, n, &r->measure.rank_times);
    free(stage);
    if (rc == 0 && mesh->rank == 0 &&
        plait_straggler_update(&r->measure.straggler, &r->measure.rank_times,
                               r->done.step, compared_every(r)))
        name_straggler(r);
    return rc;
}

static int compare_ranks(struct run *r, struct plait_error *err)
{
    float mean = (float)fmax(r->measure.busy_s / r->measure.busy_steps, 0);
    float *all = calloc((size_t)r->s->mesh->world_size, sizeof(*all));
    int rc;

    if (!all)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(r->world, all ? 0 : -1, err) < 0) {
        free(all);
        return -1;
    }
    rc = plait_comm_host_all_gather(r->world, &mean, all, sizeof(mean));
    if (rc < 0)
        plait_errorf(err, "%s", plait_comm_error(r->world));
    else if (judge_times(r, all) == 0)
        r->measure.compared = true;
    free(all);
    r->measure.busy_s = r->measure.busy_steps = 0;
    plait_run_measure_skip(r);
    return rc;
}

int plait_run_measure_slowest(struct run *r, struct plait_metrics *m,
                              struct plait_error *err)
{
    const struct plait_rank_times *t = &r->measure.rank_times;

    r->measure.busy_s += m->step_s - m->comm_s;
    r->measure.busy_steps++;
    if (r->s->mesh->world_size > 1 && r->done.step % compared_every(r) == 0 &&
        compare_ranks(r, err) < 0)
        return -1;
    m->slowest_rank = r->measure.compared ? t->slowest : -1;
    m->rank_s[0] = t->min;
    m->rank_s[1] = t->max;
    m->rank_s[2] = t->median;
    return 0;
}

/* Bytes that are offloaded: pinned memory, and the optimizer's state. Without
 * offloading pinned memory has a few results that the host reads. */
static size_t measure_host(struct run *r)
{
    const struct plait_mesh *mesh = r->s->mesh;
    const struct plait_shards *shards =
        plait_optim_shards(plait_trainer_optim(r->trainer));
    size_t pinned, state = 0;

    if (r->config->parallel.offload == PLAIT_OFFLOAD_NONE)
        return 0;
    mesh->ops->pinned_memory(mesh->dev, NULL, &pinned);
    if (r->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER)
        shards->state_ops->memory(shards->state_dev, NULL, &state);
    return pinned + state;
}

void plait_run_measure_step(struct run *r,
                            const struct plait_step_result *result,
                            double seconds, double save_every,
                            struct plait_metrics *m)
{
    struct plait_model *model = plait_trainer_model(r->trainer);
    double tokens = (double)result->batch * r->config->model.seq_len;
    double now = plait_clock_unix(), flops; /* a second */
    size_t used;

    m->step = r->done.step;
    m->batch = result->batch;
    m->seen = result->seen;
    m->skipped = result->skipped;
    m->loss = result->loss;
    m->mtp_loss = result->mtp_loss;
    m->loss_tokens = result->counted;
    m->val = (struct plait_evaluation){.loss = NAN, .accuracy = NAN};
    m->grad_norm = result->grad_norm;
    m->max_logit = result->max_logit;
    m->lr = result->lr;
    m->tokens = r->done.tokens;
    m->tokens_per_s = tokens / seconds;
    flops = m->tokens_per_s * plait_model_flops_per_token(model);
    /* A peak below a step's rate was measured while other processes used the
     * cores. */
    r->peak = fmax(r->peak, flops);
    m->mfu = flops / r->peak;
    m->mfu_causal =
        m->mfu - m->tokens_per_s * plait_model_flops_masked(model) / r->peak;
    m->step_s = seconds;
    r->s->world.ops->memory(r->s->world.dev, &used, &m->mem_bytes);
    m->host_bytes = measure_host(r);
    m->saved_step = r->saved;
    /* Only asking whether a save has ended costs microseconds, which are not
     * shown. */
    m->save_s = plait_goodput_unreported(&r->goodput);
    m->save_s = m->save_s < 1e-4 ? 0 : m->save_s;
    m->goodput = plait_goodput_share(&r->goodput, now);
    m->goodput_expected =
        isnan(m->goodput)
            ? NAN
            : plait_goodput_expected(&r->goodput, now, save_every);
    m->stage_bytes = r->measure.stage_bytes;
    m->nstages = r->s->mesh->layout.size[PLAIT_PP];
    m->shares = NULL;
    plait_run_measure_comm(r, m);
}
