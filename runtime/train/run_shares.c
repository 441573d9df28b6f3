/* SPDX-License-Identifier: Apache-2.0 */
/* Plan against actual, for each part of a step: the cost model's times on the
 * stage that it considers the slowest, and the mean of what that stage's ranks
 * have measured.
 *
 * A rank adds up, step by step, what its model and its groups have measured
 * themselves: products, attention, and the waits for each group. All ranks meet
 * once, after the last step. Ranks of other stages count as nothing in that sum
 * and take part all the same, as it is a sum over the world. A time that one
 * rank does not know is NAN, and so is the sum then. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "runtime/train/figures.h"
#include "runtime/train/run_private.h"

/* Which part the waits for a group belong to. Sums over weights that several
 * ranks share have groups of their own; a wait of all ranks together belongs to
 * no axis. */
static enum plait_step_part share_of(const char *group)
{
    if (strcmp(group, "tp") == 0)
        return PLAIT_SHARE_TP;
    if (strcmp(group, "cp") == 0)
        return PLAIT_SHARE_CP;
    if (strcmp(group, "ep") == 0)
        return PLAIT_SHARE_EP;
    if (strcmp(group, "pp") == 0)
        return PLAIT_SHARE_BUBBLE;
    if (strncmp(group, "dp", 2) == 0 || strncmp(group, "expert-dp", 9) == 0 ||
        strcmp(group, "embedding") == 0)
        return PLAIT_SHARE_DP;
    return PLAIT_SHARE_REST;
}

static void read_parts(const struct run *r, double part[PLAIT_MODEL_PARTS])
{
    const struct plait_model *model = plait_trainer_model(r->trainer);

    for (int i = 0; i < PLAIT_MODEL_PARTS; i++)
        part[i] = plait_model_took(model, i);
}

void plait_run_shares_begin(struct run *r)
{
    read_parts(r, r->shares.part);
}

void plait_run_shares_step(struct run *r, const struct plait_metrics *m)
{
    double part[PLAIT_MODEL_PARTS], *sum = r->shares.sum;

    /* The first step does not count: it also measures, records graphs and fills
     * caches. */
    if (r->shares.steps++ == 0)
        return;
    read_parts(r, part);
    sum[PLAIT_SHARE_STEP] += m->step_s;
    sum[PLAIT_SHARE_PRODUCTS] +=
        part[PLAIT_MODEL_PRODUCTS] - r->shares.part[PLAIT_MODEL_PRODUCTS];
    sum[PLAIT_SHARE_ATTENTION] +=
        part[PLAIT_MODEL_ATTENTION] - r->shares.part[PLAIT_MODEL_ATTENTION];
    for (int i = 0; i < PLAIT_NCOMMS; i++)
        sum[share_of(plait_mesh_comm_names[i])] += m->comm_wait[i];
}

/* The rest is the part of a step that no known part accounts for. */
static void set_rest(double *part)
{
    double rest = part[PLAIT_SHARE_STEP];

    for (int i = PLAIT_SHARE_PRODUCTS; i < PLAIT_SHARE_REST; i++)
        rest -= isfinite(part[i]) ? part[i] : 0;
    part[PLAIT_SHARE_REST] = rest;
}

static void set_planned(const struct plait_estimate *e, double *planned)
{
    planned[PLAIT_SHARE_STEP] = e->step_s;
    planned[PLAIT_SHARE_PRODUCTS] = e->matmul_s;
    planned[PLAIT_SHARE_ATTENTION] = e->attention_s;
    planned[PLAIT_SHARE_TP] = e->axis_s[PLAIT_TP];
    planned[PLAIT_SHARE_CP] = e->axis_s[PLAIT_CP];
    planned[PLAIT_SHARE_EP] = e->axis_s[PLAIT_EP];
    planned[PLAIT_SHARE_DP] = e->axis_s[PLAIT_DP];
    planned[PLAIT_SHARE_BUBBLE] = e->bubble_s + e->axis_s[PLAIT_PP];
    set_rest(planned);
}

/* The mean over the ranks that count. A part that one of them does not know
 * becomes NAN. */
static int average(struct run *r, bool counts, double *measured,
                   struct plait_error *err)
{
    double values[PLAIT_NSHARES + 1];
    double steps = (double)(r->shares.steps - 1);

    for (int i = 0; i < PLAIT_NSHARES; i++)
        values[i] = counts ? r->shares.sum[i] / steps : 0;
    values[PLAIT_NSHARES] = counts;
    if (plait_comm_host_all_reduce(r->world, values, PLAIT_NSHARES + 1,
                                   PLAIT_SUM) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    plait_run_measure_skip(r);
    for (int i = 0; i < PLAIT_NSHARES; i++)
        measured[i] = values[i] / values[PLAIT_NSHARES];
    set_rest(measured);
    return 0;
}

int plait_run_estimate(const struct run *r, struct plait_estimate *e)
{
    const struct plait_mesh *mesh = r->s->mesh;
    struct plait_gpu_type gpu;
    struct plait_error why;

    if (plait_figures_device(&r->s->world, &gpu) < 0)
        gpu = mesh->gpu;
    return plait_estimate(r->config, &mesh->layout, &gpu, e, &why);
}

/* All ranks take rank 0's estimate, which is from the figures of its device. */
static int plan_step(struct run *r, struct plait_estimate *e, bool *planned,
                     struct plait_error *err)
{
    struct {
        struct plait_estimate e;
        bool planned;
    } said;

    memset(&said, 0, sizeof(said));
    if (r->s->mesh->rank == 0)
        said.planned = plait_run_estimate(r, &said.e) == 0;
    if (plait_comm_host_broadcast(r->world, &said, sizeof(said), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(r->world));
    *e = said.e;
    *planned = said.planned;
    return 0;
}

int plait_run_shares_end(struct run *r, struct plait_metrics *m,
                         struct plait_error *err)
{
    const struct plait_mesh *mesh = r->s->mesh;
    struct plait_estimate e = {.slowest = 0};
    bool planned = false;

    if (r->shares.steps < 2)
        return 0;
    if (plan_step(r, &e, &planned, err) < 0)
        return -1;
    if (!planned)
        return 0;
    set_planned(&e, r->shares.shares.planned);
    if (average(r, mesh->coord.at[PLAIT_PP] == e.slowest,
                r->shares.shares.measured, err) < 0)
        return -1;
    m->shares = &r->shares.shares;
    return 0;
}
