/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/parallel/shard.h"
#include "runtime/train/run_private.h"

void plait_run_measure_comm(struct run *r, struct plait_metrics *m)
{
    struct plait_mesh *mesh = r->s->mesh;
    struct plait_comm_stats now_sent;
    int i;

    plait_comm_stats(r->world, &now_sent);
    m->comm_s = now_sent.wait_s - r->control.wait_s;
    m->comm_hidden_s = 0;
    r->control = now_sent;
    for (i = 0; i < PLAIT_NCOMMS; i++) {
        struct plait_comm *comm = plait_mesh_comm(mesh, i);

        now_sent = (struct plait_comm_stats){0};
        if (comm)
            plait_comm_stats(comm, &now_sent);
        m->comm_bytes[i] = now_sent.bytes - r->sent[i].bytes;
        m->comm_wait[i] = now_sent.wait_s - r->sent[i].wait_s;
        m->comm_s += m->comm_wait[i];
        m->comm_hidden_s += now_sent.hidden_s - r->sent[i].hidden_s;
        r->sent[i] = now_sent;
    }
}

int plait_run_measure_stages(struct run *r, struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;
    int pp = mesh->layout.size[PLAIT_PP];
    size_t now, peak;

    r->stage_bytes = calloc(pp, sizeof(*r->stage_bytes));
    if (!r->stage_bytes)
        return plait_errorf(err, "out of memory");
    mesh->ops->memory(mesh->dev, &now, &peak);
    r->stage_bytes[mesh->coord.at[PLAIT_PP]] = now;
    if (plait_comm_host_all_reduce(r->world, r->stage_bytes, pp, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

/* Which ranks share a node: names are told apart by numbers that doubles
 * hold. */
int plait_run_measure_nodes(struct run *r, struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;

    r->nodes = calloc(mesh->world_size, sizeof(*r->nodes));
    if (plait_error_consensus(r->world, r->nodes ? 0 : -1, err) < 0)
        return plait_errorf(err, "out of memory");
    r->nodes[mesh->rank] = mesh->node & 0xfffffffffffff;
    if (plait_comm_host_all_reduce(r->world, r->nodes, mesh->world_size,
                                   PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    return 0;
}

enum { COMPARED_EVERY = 10, RANKS_MOST = 1 << 20 };

static int compare_ranks(struct run *r, struct plait_error *err)
{
    double mean = r->busy_s / r->busy_steps, largest[2];

    /* Microseconds and, behind them, the rank: one reduction finds both. */
    largest[0] = floor(fmax(mean, 0) * 1e6) * RANKS_MOST + r->s->mesh->rank;
    largest[1] = -mean;
    if (plait_comm_host_all_reduce(r->world, largest, 2, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    r->slowest = (int)fmod(largest[0], RANKS_MOST);
    r->rank_s[0] = -largest[1];
    r->rank_s[1] = floor(largest[0] / RANKS_MOST) * 1e-6;
    r->busy_s = r->busy_steps = 0;
    /* What was waited for here belongs to no step. */
    plait_comm_stats(r->world, &r->control);
    return 0;
}

int plait_run_measure_slowest(struct run *r, struct plait_metrics *m,
                              struct plait_error *err)
{
    r->busy_s += m->step_s - m->comm_s;
    r->busy_steps++;
    if (r->s->mesh->world_size > 1 && r->done.step % COMPARED_EVERY == 0 &&
        compare_ranks(r, err) < 0)
        return -1;
    m->slowest_rank = r->slowest;
    memcpy(m->rank_s, r->rank_s, sizeof(m->rank_s));
    return 0;
}

/* What is offloaded: pinned memory, and the optimizer's state. */
static size_t measure_host(struct run *r)
{
    const struct plait_mesh *mesh = r->s->mesh;
    const struct plait_shards *shards =
        plait_optim_shards(plait_trainer_optim(r->trainer));
    size_t pinned, state = 0;

    mesh->ops->pinned_memory(mesh->dev, NULL, &pinned);
    if (r->config->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER)
        shards->state_ops->memory(shards->state_dev, NULL, &state);
    return pinned + state;
}

/* Steps between two checkpoints, 0: none. */
static double save_every(const struct run *r)
{
    if (!r->saver)
        return 0;
    return r->config->checkpoint.every == PLAIT_CHECKPOINT_AUTO
               ? (double)r->save_every
               : (double)r->config->checkpoint.every;
}

void plait_run_measure_step(struct run *r,
                            const struct plait_step_result *result,
                            double seconds, struct plait_metrics *m)
{
    struct plait_model *model = plait_trainer_model(r->trainer);
    double tokens = (double)result->batch * r->config->model.seq_len;
    double now = plait_unix_time(), flops; /* a second */
    size_t used;

    m->step = r->done.step;
    m->batch = result->batch;
    m->seen = result->seen;
    m->skipped = result->skipped;
    m->loss = result->loss;
    m->loss_tokens = result->counted;
    m->val = (struct plait_evaluation){.loss = NAN, .accuracy = NAN};
    m->grad_norm = result->grad_norm;
    m->lr = result->lr;
    m->tokens = r->done.tokens;
    m->tokens_per_s = tokens / seconds;
    flops = m->tokens_per_s * plait_model_flops_per_token(model);
    /* A peak that was beaten was measured while others had the cores. */
    r->peak = fmax(r->peak, flops);
    m->mfu = flops / r->peak;
    m->step_s = seconds;
    r->s->world.ops->memory(r->s->world.dev, &used, &m->mem_bytes);
    m->host_bytes = measure_host(r);
    m->saved_step = r->saved;
    /* Looking whether one is written costs microseconds. */
    m->save_s = plait_goodput_unreported(&r->goodput);
    m->save_s = m->save_s < 1e-4 ? 0 : m->save_s;
    m->goodput = plait_goodput_share(&r->goodput, now);
    m->goodput_expected =
        isnan(m->goodput)
            ? NAN
            : plait_goodput_expected(&r->goodput, now, save_every(r));
    m->stage_bytes = r->stage_bytes;
    m->nstages = r->s->mesh->layout.size[PLAIT_PP];
    m->shares = NULL;
    plait_run_measure_comm(r, m);
}
