/* SPDX-License-Identifier: Apache-2.0 */
/* What the run writes into its job's comment. Each rank counts for itself while
 * it trains, without a collective; after the last step the joules of all
 * devices are added up, and rank 0 writes the line. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/train/figures.h"
#include "runtime/train/metrics/job_line.h"
#include "runtime/train/run_private.h"
#include "topology/base/clock.h"

/* Only one rank of each node counts the energy of its processors. */
static bool is_first_of_node(const struct run *r)
{
    const double *nodes = plait_run_measure_nodes(r);

    for (int i = 0; i < r->s->mesh->rank; i++)
        if (nodes[i] == nodes[r->s->mesh->rank])
            return false;
    return true;
}

/* Only jobs of Slurm have a comment. */
static bool has_job(void)
{
    return getenv("SLURM_JOB_ID") != NULL;
}

static bool counts_energy(const struct run *r)
{
    return r->s->world.ops->gpu || is_first_of_node(r);
}

void plait_run_account_create(struct run *r)
{
    const struct plait_world *world = &r->s->world;
    const char *busid = world->planned ? world->launch.gpu_busid : "";

    r->account.first_tokens = r->done.tokens;
    r->account.loss = r->account.val_loss = NAN;
    if (has_job() && counts_energy(r) && (!world->ops->gpu || *busid))
        r->account.energy = plait_energy_create(world->ops->gpu ? busid : "",
                                                PLAIT_ENERGY_RAPL);
}

void plait_run_read_past(struct run *r)
{
    struct plait_goodput prior;
    const char *metrics = plait_session_metrics(r->s, r->args);

    plait_estimate_goodput(&r->s->mesh->gpu, r->s->mesh->world_size, &prior);
    r->goodput.opened = r->s->opened;
    r->goodput.prior = prior.between;
    r->goodput.trained_all = 0;
    plait_past_read(metrics, r->done.step, r->s->opened, &r->goodput.past);
}

void plait_run_account_step(struct run *r, const struct plait_metrics *m)
{
    struct run_account *a = &r->account;

    /* The first step does not count: it also measures, records graphs and fills
     * caches. */
    if (a->steps++ == 1)
        a->seconds = a->tokens = 0;
    a->seconds += m->step_s;
    a->tokens += m->tokens_per_s * m->step_s;
    a->loss = m->loss;
    if (!isnan(m->val.loss))
        a->val_loss = m->val.loss;
    if (a->energy)
        a->joules = plait_energy_read(a->energy);
}

/* Joules of all devices; NAN: one of them could not be measured. Collective. */
static double sum_joules(struct run *r)
{
    double values[2] = {r->account.joules,
                        counts_energy(r) && !r->account.energy};

    if (plait_comm_host_all_reduce(r->world, values, 2, PLAIT_SUM) < 0)
        return NAN;
    return values[1] == 0 && values[0] > 0 ? values[0] : NAN;
}

static void write_line(struct run *r, double joules)
{
    const struct run_account *a = &r->account;
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    struct plait_estimate e;
    int64_t counted = a->steps > 1 ? a->steps - 1 : 1;
    double rate = a->tokens / a->seconds;
    double flops =
        rate * plait_model_flops_per_token(plait_trainer_model(r->trainer));
    struct plait_job_line line = {
        .step = r->done.step,
        .steps = r->config->train.steps,
        .images = plait_is_image_model(&r->config->model),
        .restarts = restarts ? atoi(restarts) : 0,
        .loss = a->loss,
        .per_s = rate,
        .mfu = flops / r->peak,
        .per_joule = (double)(r->done.tokens - a->first_tokens) / joules,
        .step_s = a->seconds / (double)counted,
        .planned_s = plait_run_estimate(r, &e) == 0 ? e.step_s : NAN,
        .lost_s = plait_goodput_lost(&r->goodput, plait_clock_unix()),
    };

    plait_job_line_write(&line);
}

void plait_run_account_end(struct run *r)
{
    double joules = sum_joules(r);

    if (plait_comm_rank(r->world) == 0 && r->account.steps > 0 && has_job() &&
        plait_figures_job_comment())
        write_line(r, joules);
}

void plait_run_account_destroy(struct run *r)
{
    plait_energy_destroy(r->account.energy);
}

double plait_run_account_seconds(const struct run *r)
{
    return r->account.seconds;
}
