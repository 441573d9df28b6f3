/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/proof.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hash.h"

/* The set of ranks that may be unable to go on. It begins with all that wait,
 * and loses those that no other member of it keeps waiting, until none is lost
 * any more. */
struct set {
    const struct plait_stuck_rank *rank;
    int n;
    bool *in;    /* [n] */
    bool *mixed; /* [n] it has entered what differs from another's */
};

static bool same_name(const struct plait_stuck_group *a,
                      const struct plait_stuck_group *b)
{
    return a->first == b->first && a->size == b->size &&
           !strcmp(a->name, b->name);
}

/* The other rank's entry for group `own` of rank r. Groups of one name that are
 * made one after the other are in the same order on all of their ranks. NULL:
 * it has none. */
static const struct plait_stuck_group *
find_twin(const struct plait_stuck_rank *r, int own,
          const struct plait_stuck_rank *other)
{
    int before = 0;

    for (int i = 0; i < own; i++)
        before += same_name(&r->group[i], &r->group[own]);
    for (int i = 0; i < other->ngroups; i++)
        if (same_name(&other->group[i], &r->group[own]) && before-- == 0)
            return &other->group[i];
    return NULL;
}

static bool is_waiting(const struct plait_stuck_rank *r)
{
    return r->state == PLAIT_STUCK_RUNS && r->waits >= 0 &&
           r->waits < r->ngroups;
}

static enum plait_series series_of(const struct plait_stuck_rank *r)
{
    return plait_op_series(plait_tag_op(r->in.tag));
}

static bool waits_alike(const struct plait_stuck_rank *a,
                        const struct plait_stuck_rank *b)
{
    return a->in.tag == b->in.tag && series_of(a) != PLAIT_SERIES_MESSAGE &&
           find_twin(a, a->waits, b) == &b->group[b->waits];
}

/* Whether r, which waits, cannot go on before `other` enters something more. Of
 * messages it is known only if the other rank has begun none in that group:
 * what it has sent may be under way. */
static bool is_kept(const struct plait_stuck_rank *r,
                    const struct plait_stuck_rank *other)
{
    enum plait_series series = series_of(r);
    const struct plait_stuck_group *theirs = find_twin(r, r->waits, other);

    if (!theirs)
        return false;
    if (series == PLAIT_SERIES_MESSAGE)
        return theirs->index == r->peer && theirs->entered[series] == 0;
    return theirs->entered[series] < plait_tag_number(r->in.tag);
}

/* Whether `other` has entered something else under the number of what r waits
 * in. */
static bool is_other(const struct plait_stuck_rank *r,
                     const struct plait_stuck_rank *other)
{
    enum plait_series series = series_of(r);
    uint64_t number = plait_tag_number(r->in.tag);
    const struct plait_stuck_group *theirs;
    const struct plait_stuck_op *op;

    if (series == PLAIT_SERIES_MESSAGE || other->state > PLAIT_STUCK_STOPPED)
        return false;
    theirs = find_twin(r, r->waits, other);
    if (!theirs)
        return false;
    op = &theirs->last[series][number % PLAIT_RECORD_LAST];
    return op->tag && plait_tag_number(op->tag) == number &&
           (op->tag != r->in.tag || op->bytes != r->in.bytes);
}

/* Of neighbours in the same collective one is compared with all others. */
static void find_mixed(struct set *s)
{
    int last = -1;

    for (int i = 0; i < s->n; i++) {
        if (!s->in[i])
            continue;
        if (last >= 0 && waits_alike(&s->rank[last], &s->rank[i]) &&
            s->rank[last].in.bytes == s->rank[i].in.bytes) {
            s->mixed[i] |= s->mixed[last];
            continue;
        }
        for (int k = 0; k < s->n; k++)
            if (k != i && is_other(&s->rank[i], &s->rank[k]))
                s->mixed[i] = s->mixed[k] = true;
        last = i;
    }
}

/* Take rank i out, and those that wait in the same collective: what is true of
 * it is true of them. */
static void lose(struct set *s, int i)
{
    s->in[i] = false;
    for (int k = 0; k < s->n; k++)
        if (s->in[k] && waits_alike(&s->rank[i], &s->rank[k]))
            s->in[k] = false;
}

static bool lose_some(struct set *s)
{
    bool lost = false;

    for (int i = 0; i < s->n; i++) {
        bool kept = false;

        for (int k = 0; s->in[i] && !kept && k < s->n; k++)
            kept = s->in[k] && k != i && is_kept(&s->rank[i], &s->rank[k]);
        if (!s->in[i] || kept)
            continue;
        lose(s, i);
        lost = true;
    }
    return lost;
}

static uint64_t mark_of(const struct plait_stuck_rank *r)
{
    uint64_t hash =
        plait_hash_bytes(PLAIT_HASH_START, &r->rank, sizeof(r->rank));

    hash = plait_hash_bytes(hash, &r->waits, sizeof(r->waits));
    return plait_hash_bytes(hash, &r->in, sizeof(r->in));
}

static int copy_ranks(const struct set *s, struct plait_stuck_proof *proof)
{
    bool some = false, differ = false;

    for (int i = 0; i < s->n; i++) {
        some |= s->in[i];
        differ |= s->mixed[i];
    }
    if (!some)
        return 0;
    proof->rank = calloc((size_t)s->n, sizeof(*proof->rank));
    if (!proof->rank)
        return -1;
    for (int i = 0; i < s->n; i++) {
        if (s->in[i] || (differ && s->rank[i].state == PLAIT_STUCK_RUNS))
            proof->rank[proof->n++] = s->rank[i];
        if (s->in[i])
            proof->mark = proof->mark * 31 + mark_of(&s->rank[i]);
    }
    return 0;
}

int plait_stuck_prove(const struct plait_stuck_rank *ranks, int n,
                      struct plait_stuck_proof *proof)
{
    struct set s = {.rank = ranks, .n = n};
    int rc = -1;

    memset(proof, 0, sizeof(*proof));
    s.in = calloc((size_t)n + 1, sizeof(*s.in));
    s.mixed = calloc((size_t)n + 1, sizeof(*s.mixed));
    if (!s.in || !s.mixed)
        goto error;
    for (int i = 0; i < n; i++)
        s.in[i] = is_waiting(&ranks[i]);
    find_mixed(&s);
    while (lose_some(&s))
        ;
    for (int i = 0; i < n; i++)
        s.in[i] |= s.mixed[i] && is_waiting(&ranks[i]);
    rc = copy_ranks(&s, proof);
error:
    free(s.in);
    free(s.mixed);
    return rc;
}

void plait_stuck_proof_clear(struct plait_stuck_proof *proof)
{
    free(proof->rank);
    memset(proof, 0, sizeof(*proof));
}
