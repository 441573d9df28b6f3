/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/replicas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/optim/averaging.h"
#include "runtime/optim/fragments.h"
#include "runtime/optim/meetings.h"
#include "runtime/parallel/shard.h"

/* The memory ranges that each learner has its own version of. */
enum { MASTERS, STATES, NRANGES };

struct range {
    char *at;
    size_t bytes;
};

struct plait_replicas {
    struct plait_optim *optim;
    struct plait_model *model;
    const struct plait_sync_config *config;
    struct plait_comm *dp;
    struct plait_vectors v; /* describes vectors over this rank's weights */
    struct range live[NRANGES];
    struct plait_meetings *meetings; /* NULL with sma */
    float *common;
    float *momentum;   /* of the common model; NULL with local */
    float *correction; /* sma's */
    float *sum;        /* of the learners' corrections; the same as correction
                        * if there is one learner */
    int learners, selected;
    char **parked; /* [learners] saved ranges of each, in one block; NULL: one
                    * learner */
    int npieces;
    struct plait_optim_piece *pieces; /* of all learners and of the common
                                       * model */
    int64_t step;
    bool apart; /* the replicas train apart now */
};

static float *masters(const struct plait_replicas *r)
{
    return (float *)r->live[MASTERS].at;
}

/* -- what a checkpoint holds ---------------------------------------------- */

/* Where learner i saves the number that is at `piece` while the learner is
 * selected. */
static void *place_of(const struct plait_replicas *r, int i, void *piece)
{
    char *at = i ? r->parked[i] : NULL, *p = piece;

    for (int k = 0; at && k < NRANGES; k++) {
        const struct range *live = &r->live[k];

        if (p >= live->at && p < live->at + live->bytes)
            return at + (p - live->at);
        at += live->bytes;
    }
    return piece;
}

static void add_piece(struct plait_replicas *r,
                      const struct plait_optim_piece *of, const char *owner,
                      void *data)
{
    struct plait_optim_piece *p = &r->pieces[r->npieces++];

    *p = *of;
    p->data = data;
    snprintf(p->owner, sizeof(p->owner), "%s", owner);
}

static int list_pieces(struct plait_replicas *r)
{
    const struct plait_optim_piece *live;
    int n = plait_optim_pieces(r->optim, &live);
    int first = plait_comm_rank(r->dp) * r->learners;
    char owner[sizeof(live->owner)];
    float *pending = r->meetings ? plait_meetings_pending(r->meetings) : NULL;

    r->pieces = calloc((size_t)n * (r->learners + 3) + 1, sizeof(*r->pieces));
    if (!r->pieces)
        return -1;
    for (int i = 0; i < n; i++) {
        size_t at;

        for (int k = 0; k < r->learners; k++) {
            snprintf(owner, sizeof(owner), "replica.%d.", first + k);
            add_piece(r, &live[i], owner, place_of(r, k, live[i].data));
        }
        if (live[i].state)
            continue;
        at = (float *)live[i].data - masters(r);
        add_piece(r, &live[i], "", r->common + at);
        if (r->momentum)
            add_piece(r, &live[i], "sync.momentum.", r->momentum + at);
        if (pending)
            add_piece(r, &live[i], PLAIT_PENDING, pending + at);
    }
    return 0;
}

int plait_replicas_pieces(const struct plait_replicas *r,
                          const struct plait_optim_piece **pieces)
{
    *pieces = r->pieces;
    return r->npieces;
}

/* -- life ---------------------------------------------------------------- */

static size_t count_elements(const struct plait_shards *shards)
{
    size_t n = 0;

    for (int i = 0; i < shards->n; i++)
        n += shards->shard[i].part;
    return n;
}

static float *allocate_vector(struct plait_replicas *r)
{
    const struct plait_mesh *mesh = r->model->mesh;
    size_t bytes = r->v.n * sizeof(float);

    return r->v.ops->alloc(mesh->dev, bytes ? bytes : 1);
}

static int allocate_parked(struct plait_replicas *r)
{
    size_t bytes = 0;

    if (r->learners == 1)
        return 0;
    for (int i = 0; i < NRANGES; i++)
        bytes += r->live[i].bytes;
    r->parked = calloc(r->learners, sizeof(*r->parked));
    for (int i = 0; r->parked && i < r->learners; i++) {
        r->parked[i] = r->v.ops->alloc(r->model->mesh->dev, bytes);
        if (!r->parked[i])
            return -1;
    }
    return r->parked ? 0 : -1;
}

static int allocate_vectors(struct plait_replicas *r)
{
    bool sma = r->config->mode == PLAIT_SYNC_SMA;
    bool moves = sma || r->config->mode == PLAIT_SYNC_DILOCO;

    r->common = allocate_vector(r);
    if (moves)
        r->momentum = allocate_vector(r);
    if (sma)
        r->correction = allocate_vector(r);
    r->sum = r->learners > 1 ? allocate_vector(r) : r->correction;
    if (!r->common || (moves && !r->momentum) ||
        (sma && (!r->correction || !r->sum)))
        return -1;
    return allocate_parked(r);
}

static int open_meetings(struct plait_replicas *r,
                         const struct plait_shards *shards)
{
    const struct plait_meeting_vectors vectors = {r->v, masters(r), r->common,
                                                  r->momentum};

    if (r->config->mode == PLAIT_SYNC_SMA)
        return 0;
    r->meetings = plait_meetings_create(shards, &vectors);
    return r->meetings ? 0 : -1;
}

struct plait_replicas *plait_replicas_create(struct plait_optim *optim,
                                             struct plait_error *err)
{
    struct plait_replicas *r = calloc(1, sizeof(*r));
    struct plait_shards *shards = plait_optim_shards(optim);
    const struct plait_mesh *mesh = shards->model->mesh;

    if (!r)
        goto error;
    r->optim = optim;
    r->model = shards->model;
    r->config = &r->model->config->sync;
    r->dp = mesh->group[PLAIT_GROUP_DP];
    r->learners = plait_sync_learners(r->config);
    r->v = (struct plait_vectors){mesh->ops, mesh->q, count_elements(shards)};
    /* In each range, the regions are adjacent. */
    r->live[MASTERS].at = (char *)shards->shard[0].master;
    r->live[MASTERS].bytes = r->v.n * sizeof(float);
    r->live[STATES].at = shards->states;
    r->live[STATES].bytes =
        shards->nstates * r->v.n * plait_dtype_size(shards->state_type);
    if (allocate_vectors(r) < 0 || open_meetings(r, shards) < 0 ||
        list_pieces(r) < 0)
        goto error;
    plait_optim_set_replicas(optim, r);
    return r;

error:
    plait_errorf(err, "out of memory for the common model of replicas that "
                      "train apart, and for what they send (sync.delay and "
                      "sync.gradients)");
    plait_replicas_destroy(r);
    errno = ENOMEM;
    return NULL;
}

void plait_replicas_destroy(struct plait_replicas *r)
{
    int saved = errno;

    if (!r)
        return;
    if (plait_optim_replicas(r->optim) == r)
        plait_optim_set_replicas(r->optim, NULL);
    plait_meetings_destroy(r->meetings);
    if (r->sum != r->correction)
        r->v.ops->free(r->model->mesh->dev, r->sum);
    r->v.ops->free(r->model->mesh->dev, r->correction);
    r->v.ops->free(r->model->mesh->dev, r->momentum);
    r->v.ops->free(r->model->mesh->dev, r->common);
    for (int i = 0; r->parked && i < r->learners; i++)
        r->v.ops->free(r->model->mesh->dev, r->parked[i]);
    free(r->parked);
    free(r->pieces);
    free(r);
    errno = saved;
}

int plait_replicas_count(const struct plait_replicas *r)
{
    return plait_comm_size(r->dp) * r->learners;
}

/* -- switching weights ---------------------------------------------------- */

static int copy_weights(struct plait_replicas *r, float *to, const float *from)
{
    return r->v.ops->copy(r->v.q, to, from, r->v.n * sizeof(*to));
}

/* Updates the weights that the model computes with from the masters. */
static int follow(struct plait_replicas *r)
{
    struct plait_error unasked;

    return plait_optim_refresh(r->optim, &unasked);
}

/* Saves the live ranges for learner i, or restores them. */
static int park(struct plait_replicas *r, int i, bool back)
{
    char *at = r->parked[i];

    for (int k = 0; k < NRANGES; k++) {
        struct range *live = &r->live[k];

        if (live->bytes > 0 &&
            r->v.ops->copy(r->v.q, back ? live->at : at, back ? at : live->at,
                           live->bytes) < 0)
            return -1;
        at += live->bytes;
    }
    return 0;
}

int plait_replicas_select(struct plait_replicas *r, int i)
{
    if (i == r->selected)
        return 0;
    if (park(r, r->selected, false) < 0 || park(r, i, true) < 0)
        return -1;
    r->selected = i;
    return follow(r);
}

/* -- a step --------------------------------------------------------------- */

void plait_replicas_resume(struct plait_replicas *r, int64_t step,
                           const int64_t *sent)
{
    r->apart = step > 0 && plait_sync_apart(r->config, step - 1);
    if (r->meetings)
        plait_meetings_resume(r->meetings, sent);
}

const int64_t *plait_replicas_sent(const struct plait_replicas *r)
{
    return r->meetings ? plait_meetings_sent(r->meetings) : NULL;
}

/* Whether the learning rate falls at this step: then sma restarts. */
static bool is_restart(const struct plait_replicas *r, int64_t step)
{
    const struct plait_numbers *at = &r->model->config->lr.decay_at;

    for (int i = 0; r->config->mode == PLAIT_SYNC_SMA && i < at->n; i++)
        if (at->at[i] == step)
            return true;
    return false;
}

/* All learners continue from the common model, with their own optimizer
 * state. */
static int restart_learners(struct plait_replicas *r)
{
    float *w = masters(r);

    for (int i = 0; i < r->learners; i++)
        if (copy_weights(r, place_of(r, i, w), r->common) < 0)
            return -1;
    if (r->v.ops->fill_zero(r->v.q, r->momentum, r->v.n * sizeof(*w)) < 0)
        return -1;
    return follow(r);
}

int plait_replicas_begin(struct plait_replicas *r, int64_t step)
{
    r->step = step;
    if (r->apart)
        return is_restart(r, step) ? restart_learners(r) : 0;
    if (!plait_sync_apart(r->config, step))
        return 0;
    r->apart = true;
    for (int i = 1; i < r->learners; i++)
        if (park(r, i, false) < 0)
            return -1;
    return copy_weights(r, r->common, masters(r));
}

static bool corrects(const struct plait_replicas *r)
{
    return r->config->mode == PLAIT_SYNC_SMA &&
           plait_sync_due(r->config, 0, r->step + 1,
                          r->model->config->train.steps);
}

/* Running statistics are averaged, no more: a learner follows no correction of
 * them, and their average has no momentum. Either would drive variances below
 * zero. Calls `treat` with the place of each among the masters. */
static int each_statistic(struct plait_replicas *r,
                          int (*treat)(struct plait_replicas *r, size_t at,
                                       size_t n))
{
    const struct plait_optim_slice *s;
    int n = plait_optim_slices(r->optim, &s);

    for (int i = 0; r->model->statistics > 0 && i < n; i++)
        if (s[i].tensor->statistic && !s[i].tensor->balance &&
            treat(r, (size_t)(s[i].master - masters(r)), s[i].count) < 0)
            return -1;
    return 0;
}

/* The sum of all learners' corrections moves the common model to their mean. */
static int share_statistic(struct plait_replicas *r, size_t at, size_t n)
{
    struct plait_vectors v = r->v;

    v.n = n;
    return plait_average_correction(&v, r->correction + at, masters(r) + at,
                                    r->common + at,
                                    1.0 / plait_replicas_count(r));
}

static int restore_statistic(struct plait_replicas *r, size_t at, size_t n)
{
    float *w = masters(r) + at;

    return r->v.ops->add(r->v.q, &(struct plait_add){.type = PLAIT_F32,
                                                     .out = w,
                                                     .a = w,
                                                     .b = r->correction + at,
                                                     .n = n});
}

static int stop_statistic(struct plait_replicas *r, size_t at, size_t n)
{
    return r->v.ops->fill_zero(r->v.q, r->momentum + at,
                               n * sizeof(*r->momentum));
}

int plait_replicas_before_update(struct plait_replicas *r)
{
    double alpha = r->config->alpha;

    if (!corrects(r))
        return 0;
    if (alpha < 0)
        alpha = 1.0 / plait_replicas_count(r);
    if (plait_average_correction(&r->v, r->correction, masters(r), r->common,
                                 alpha) < 0)
        return -1;
    return each_statistic(r, share_statistic);
}

int plait_replicas_after_update(struct plait_replicas *r)
{
    const struct plait_vectors *v = &r->v;

    if (!corrects(r))
        return 0;
    if (v->ops->add_scaled(v->q, &(struct plait_add){.type = PLAIT_F32,
                                                     .out = masters(r),
                                                     .a = masters(r),
                                                     .b = r->correction,
                                                     .s = -1,
                                                     .n = v->n}) < 0 ||
        each_statistic(r, restore_statistic) < 0 || follow(r) < 0)
        return -1;
    if (r->sum == r->correction)
        return 0;
    if (r->selected == 0)
        return copy_weights(r, r->sum, r->correction);
    return v->ops->add(v->q, &(struct plait_add){.type = PLAIT_F32,
                                                 .out = r->sum,
                                                 .a = r->sum,
                                                 .b = r->correction,
                                                 .n = v->n});
}

static int meet_sma(struct plait_replicas *r)
{
    if (plait_fragment_sum(r->dp, r->v.q, r->sum, r->v.n) < 0 ||
        each_statistic(r, stop_statistic) < 0)
        return -1;
    return plait_average_sma(&r->v, r->common, r->momentum, r->sum,
                             r->config->momentum);
}

static int meet(struct plait_replicas *r)
{
    bool changed;

    if (!r->meetings)
        return corrects(r) ? meet_sma(r) : 0;
    if (plait_meetings_end(r->meetings, r->step + 1, &changed) < 0)
        return -1;
    return changed ? follow(r) : 0;
}

int plait_replicas_end(struct plait_replicas *r)
{
    return plait_replicas_select(r, 0) < 0 ? -1 : meet(r);
}

/* -- the common model ----------------------------------------------------- */

int plait_replicas_lend(struct plait_replicas *r)
{
    float *aside = plait_optim_shards(r->optim)->grads;

    if (!r->apart)
        return 0;
    if (copy_weights(r, aside, masters(r)) < 0 ||
        copy_weights(r, masters(r), r->common) < 0)
        return -1;
    return follow(r);
}

int plait_replicas_return(struct plait_replicas *r)
{
    if (!r->apart)
        return 0;
    if (copy_weights(r, masters(r), plait_optim_shards(r->optim)->grads) < 0)
        return -1;
    return follow(r);
}

int plait_replicas_settle(struct plait_replicas *r)
{
    if (!r->apart)
        return copy_weights(r, r->common, masters(r));
    return r->meetings ? plait_meetings_settle(r->meetings) : 0;
}
