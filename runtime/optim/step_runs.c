/* SPDX-License-Identifier: Apache-2.0 */
/* The slices as arguments of the step's operations. */
#include "config.h"

#include "runtime/optim/optim_private.h"
#include "topology/base/hash.h"

/* Where the slice begins in the whole tensor, whose name tells it from
 * others. */
static struct plait_origin origin_of(const struct plait_optim_slice *s)
{
    const struct plait_tensor *t = s->tensor;

    return (struct plait_origin){.tensor =
                                     plait_hash_text(PLAIT_HASH_START, t->name),
                                 .row = t->tp_axis == 0 ? t->local_first : 0,
                                 .column = t->tp_axis == 1 ? t->local_first : 0,
                                 .columns = t->local_shape[1],
                                 .first = s->first};
}

static struct plait_update_run run_of(const struct plait_optim *optim,
                                      int slice)
{
    const struct plait_optim_slice *of = &optim->slices[slice];
    const struct plait_model *model = optim->model;
    const struct plait_tensor *t = of->tensor;
    const struct plait_shard *s = &optim->shards->shard[t->region];
    struct plait_update_run run = {
        .master = of->master,
        .origin = origin_of(of),
        .grad = s->grad + of->at,
        .weight = of->weight,
        .n = of->count,
        .weight_decay =
            t->decay ? model->config->optim.weight_decay / t->rate : 0,
    };

    for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
        run.state[k] = of->state[k];
    if (optim->rule->factor) {
        run.factor = optim->device_factors + slice;
        run.sums = optim->device_sums + slice * PLAIT_SUMS_PER_TENSOR;
    }
    return run;
}

/* The class of a slice's run, which is made if there is none yet. */
static unsigned char class_of(struct plait_optim *optim, int slice)
{
    const struct plait_tensor *t = optim->slices[slice].tensor;
    struct plait_step_class want = {(float)t->rate, (float)t->eps};
    int i = 0;

    while (i < optim->nclasses && (optim->classes[i].rate != want.rate ||
                                   optim->classes[i].eps != want.eps))
        i++;
    if (i == optim->nclasses)
        optim->classes[optim->nclasses++] = want;
    return (unsigned char)i;
}

/* Whether `next` continues all arrays of `run`, whose states have `size` bytes,
 * and is updated in the same way. */
static bool continues(const struct plait_update_run *run,
                      const struct plait_update_run *next, size_t size)
{
    for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
        if (run->state[k]
                ? (char *)run->state[k] + run->n * size != next->state[k]
                : next->state[k] != NULL)
            return false;
    return run->master + run->n == next->master &&
           run->weight_decay == next->weight_decay &&
           run->factor == next->factor;
}

/* first: the region has no runs yet. */
static void add_run(struct plait_optim *optim,
                    const struct plait_update_run *run, int slice, bool first)
{
    struct plait_update_run *last = optim->runs + optim->nruns - 1;
    bool directed = plait_directions_take(optim, slice);
    unsigned char class = class_of(optim, slice);
    size_t size = plait_dtype_size(optim->shards->state_type);

    if (!first && !plait_optim_draws(optim) && continues(last, run, size) &&
        optim->directed[optim->nruns - 1] == directed &&
        optim->class[optim->nruns - 1] == class) {
        last->n += run->n;
        return;
    }
    optim->directed[optim->nruns] = directed;
    optim->class[optim->nruns] = class;
    optim->runs[optim->nruns++] = *run;
}

/* Whether the slice's states are codes. */
static bool is_coded(const struct plait_optim *optim, int slice)
{
    return optim->codes && plait_optim_codes_of(optim->codes, slice)->code[0];
}

static void add_run8(struct plait_optim *optim,
                     const struct plait_update_run *run, int slice)
{
    const struct plait_slice_codes *codes =
        plait_optim_codes_of(optim->codes, slice);
    struct plait_update8_run *to = &optim->runs8[optim->nruns8];

    optim->class8[optim->nruns8++] = class_of(optim, slice);
    *to = (struct plait_update8_run){.master = run->master,
                                     .grad = run->grad,
                                     .weight = run->weight,
                                     .n = run->n,
                                     .weight_decay = run->weight_decay};
    for (int k = 0; k < PLAIT_OPTIM_STATES; k++) {
        to->code[k] = codes->code[k];
        to->scale[k] = codes->scale[k];
    }
}

static void add_squares(struct plait_optim *optim,
                        const struct plait_update_run *run)
{
    struct plait_floats *last = optim->squares + optim->nsquares - 1;

    if (optim->nsquares > 0 && last->x + last->n == run->grad)
        last->n += run->n;
    else
        optim->squares[optim->nsquares++] =
            (struct plait_floats){run->grad, run->n};
}

/* Slices are in the order of the regions. */
void plait_optim_list_runs(struct plait_optim *optim)
{
    int s = 0;

    for (int i = 0; i < optim->shards->n; i++) {
        int first = optim->nruns;

        for (; s < optim->nslices && optim->slices[s].tensor->region == i;
             s++) {
            struct plait_update_run run = run_of(optim, s);

            if (optim->slices[s].tensor->statistic)
                continue;
            if (is_coded(optim, s))
                add_run8(optim, &run, s);
            else
                add_run(optim, &run, s, optim->nruns == first);
            if (plait_optim_counts(optim, &optim->slices[s]))
                add_squares(optim, &run);
        }
        optim->ends[i] = optim->nruns;
        optim->ends8[i] = optim->nruns8;
    }
}
