/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/meetings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/optim/exchange.h"
#include "runtime/optim/fragments.h"

/* What a run has sent and not yet received. */
struct transfer {
    bool summed; /* the pending vector has the sum */
    struct plait_request *req;
};

struct plait_meetings {
    const struct plait_sync_config *config;
    int64_t steps; /* of the training */
    struct plait_comm *dp;
    struct plait_device *dev;
    struct plait_meeting_vectors at;
    int nruns;
    struct plait_fragment_run *runs;
    struct plait_exchange *exchange;
    struct transfer *transfers; /* [nruns] */
    int64_t sent[PLAIT_SYNC_FRAGMENTS_MOST];
    float *pending; /* NULL: no delay */
};

struct plait_meetings *
plait_meetings_create(const struct plait_shards *shards,
                      const struct plait_meeting_vectors *vectors)
{
    const struct plait_job_config *config = shards->model->config;
    struct plait_meetings *m = calloc(1, sizeof(*m));
    const struct plait_mesh *mesh = shards->model->mesh;

    if (!m)
        return NULL;
    m->config = &config->sync;
    m->steps = config->train.steps;
    m->dp = mesh->group[PLAIT_GROUP_DP];
    m->dev = mesh->dev;
    m->at = *vectors;
    m->nruns =
        plait_fragments_list(shards, plait_sync_fragments(m->config), &m->runs);
    m->exchange = plait_exchange_create(m->config, m->dp, &m->at.v, mesh->dev);
    if (m->nruns < 0 || !m->exchange)
        goto error;
    m->transfers = calloc((size_t)m->nruns + 1, sizeof(*m->transfers));
    if (!m->transfers)
        goto error;
    if (m->config->delay > 0 &&
        !(m->pending =
              mesh->ops->alloc(mesh->dev, (m->at.v.n + 1) * sizeof(float))))
        goto error;
    return m;

error:
    plait_meetings_destroy(m);
    errno = ENOMEM;
    return NULL;
}

void plait_meetings_destroy(struct plait_meetings *m)
{
    int saved = errno;

    if (!m)
        return;
    for (int i = 0; m->transfers && i < m->nruns; i++)
        if (m->transfers[i].req)
            plait_comm_wait(&m->transfers[i].req, m->at.v.q);
    m->at.v.ops->free(m->dev, m->pending);
    plait_exchange_destroy(m->exchange);
    free(m->transfers);
    free(m->runs);
    free(m);
    errno = saved;
}

/* -- a meeting ------------------------------------------------------------ */

/* The common model moves by `sum`, which is spent. */
static int move_common(struct plait_meetings *m,
                       const struct plait_fragment_run *run, float *sum)
{
    struct plait_vectors v = {m->at.v.ops, m->at.v.q, run->n};
    struct plait_outer_sgd outer = {.replicas = plait_comm_size(m->dp),
                                    .lr = m->config->lr,
                                    .mu = m->config->momentum};
    float *common = m->at.common + run->at;

    return m->at.momentum
               ? plait_average_diloco(&v, sum, common, m->at.momentum + run->at,
                                      &outer)
               : plait_average_local(&v, sum, common, outer.replicas);
}

static int meet_run(struct plait_meetings *m,
                    const struct plait_fragment_run *run)
{
    struct plait_vectors v = {m->at.v.ops, m->at.v.q, run->n};
    float *w = m->at.w + run->at;

    if (plait_average_difference(&v, w, m->at.common + run->at) < 0 ||
        plait_exchange_sum(m->exchange, w, run->n) < 0)
        return -1;
    return move_common(m, run, w);
}

/* -- with a delay --------------------------------------------------------- */

static int send_run(struct plait_meetings *m, int i)
{
    const struct plait_fragment_run *run = &m->runs[i];
    struct plait_vectors v = {m->at.v.ops, m->at.v.q, run->n};
    struct transfer *t = &m->transfers[i];
    float *change = m->pending + run->at;

    if (v.ops->copy(v.q, change, m->at.w + run->at, run->n * sizeof(*change)) <
            0 ||
        plait_average_difference(&v, change, m->at.common + run->at) < 0 ||
        plait_exchange_send(m->exchange, change, run->at, run->n, &t->req) < 0)
        return -1;
    t->summed = false;
    return 0;
}

static int await_sum(struct plait_meetings *m, int i)
{
    const struct plait_fragment_run *run = &m->runs[i];
    struct transfer *t = &m->transfers[i];

    if (m->sent[run->fragment] == 0 || t->summed)
        return 0;
    if (plait_exchange_receive(m->exchange, m->pending + run->at, run->at,
                               run->n, &t->req) < 0)
        return -1;
    t->summed = true;
    return 0;
}

/* Nothing is left of what has arrived, as in a run that was resumed since. */
static int receive_run(struct plait_meetings *m, int i, double kept)
{
    const struct plait_fragment_run *run = &m->runs[i];
    struct plait_vectors v = {m->at.v.ops, m->at.v.q, run->n};
    float *sum = m->pending + run->at;

    if (await_sum(m, i) < 0 || move_common(m, run, sum) < 0 ||
        v.ops->fill_zero(v.q, sum, run->n * sizeof(*sum)) < 0)
        return -1;
    return plait_average_mix(&v, m->at.w + run->at, m->at.common + run->at,
                             kept);
}

/* -- a step --------------------------------------------------------------- */

/* At the end a replica keeps all of its weights, as it meets the others at
 * once. */
static int arrive(struct plait_meetings *m, int fragment, int64_t done)
{
    double kept = done == m->steps ? 1 : plait_sync_mixing(m->config);

    for (int i = 0; i < m->nruns; i++)
        if (m->runs[i].fragment == fragment && receive_run(m, i, kept) < 0)
            return -1;
    m->sent[fragment] = 0;
    return 0;
}

static int let_meet(struct plait_meetings *m, int fragment, int64_t done,
                    bool sends)
{
    for (int i = 0; i < m->nruns; i++)
        if (m->runs[i].fragment == fragment &&
            (sends ? send_run(m, i) : meet_run(m, &m->runs[i])) < 0)
            return -1;
    if (sends)
        m->sent[fragment] = done;
    return 0;
}

/* The ranks of a dp group hold the same layers, and have the same runs. All
 * that arrives comes first: a meeting takes the room of its codes. */
int plait_meetings_end(struct plait_meetings *m, int64_t done, bool *changed)
{
    int fragments = plait_sync_fragments(m->config), delay = m->config->delay;
    bool sends = delay > 0 && done < m->steps, now = false;

    for (int i = 0; i < fragments; i++)
        if (m->sent[i] > 0 && (done >= m->sent[i] + delay || !sends)) {
            if (arrive(m, i, done) < 0)
                return -1;
            now = true;
        }
    for (int i = 0; i < fragments; i++)
        if (plait_sync_due(m->config, i, done, m->steps)) {
            if (let_meet(m, i, done, sends) < 0)
                return -1;
            now |= !sends;
        }
    *changed = now;
    return 0;
}

/* -- checkpoints ---------------------------------------------------------- */

float *plait_meetings_pending(const struct plait_meetings *m)
{
    return m->pending;
}

int plait_meetings_settle(struct plait_meetings *m)
{
    for (int i = 0; i < m->nruns; i++)
        if (await_sum(m, i) < 0)
            return -1;
    return 0;
}

const int64_t *plait_meetings_sent(const struct plait_meetings *m)
{
    return m->sent;
}

void plait_meetings_resume(struct plait_meetings *m, const int64_t *sent)
{
    memcpy(m->sent, sent, sizeof(m->sent));
    for (int i = 0; i < m->nruns; i++)
        m->transfers[i].summed = true;
}
