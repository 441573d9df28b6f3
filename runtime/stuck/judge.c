/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/stuck/judge.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A breadth-first search from the ranks that wait to those they wait for, which
 * ends at ranks that wait for nobody. */
struct walk {
    const struct plait_stuck_rank *rank;
    int n;
    bool *reached, *expanded;
    int *via;   /* a rank that waits for this one */
    int *queue; /* the reached ranks */
    int head, tail;
};

static const struct plait_stuck_group *
find_group(const struct plait_stuck_rank *r, const struct plait_stuck_group *g)
{
    for (int i = 0; i < r->ngroups; i++)
        if (r->group[i].first == g->first && !strcmp(r->group[i].name, g->name))
            return &r->group[i];
    return NULL;
}

static bool is_waiting(const struct plait_stuck_rank *r)
{
    return r->state == PLAIT_STUCK_RUNS && r->waits >= 0 &&
           r->waits < r->ngroups;
}

static enum plait_series series_of(const struct plait_stuck_op *op)
{
    return plait_op_series(plait_tag_op(op->tag));
}

/* Whether both wait in the same collective. */
static bool waits_alike(const struct plait_stuck_rank *a,
                        const struct plait_stuck_rank *b)
{
    const struct plait_stuck_group *ga = &a->group[a->waits], *gb;

    if (!is_waiting(b))
        return false;
    gb = &b->group[b->waits];
    return ga->first == gb->first && !strcmp(ga->name, gb->name) &&
           series_of(&a->in) != PLAIT_SERIES_MESSAGE &&
           series_of(&a->in) == series_of(&b->in) &&
           plait_tag_number(a->in.tag) == plait_tag_number(b->in.tag);
}

/* -- ranks that entered other things ------------------------------------- */

/* The operation that the rank entered under that number; NULL: not
 * remembered. */
static const struct plait_stuck_op *
entered_as(const struct plait_stuck_rank *r, const struct plait_stuck_group *g,
           enum plait_series series, uint64_t number)
{
    const struct plait_stuck_group *mine = find_group(r, g);
    const struct plait_stuck_op *op;

    if (!mine || r->state > PLAIT_STUCK_STOPPED)
        return NULL;
    op = &mine->last[series][number % PLAIT_RECORD_LAST];
    return op->tag && plait_tag_number(op->tag) == number ? op : NULL;
}

static bool same_op(const struct plait_stuck_op *a,
                    const struct plait_stuck_op *b)
{
    return a->tag == b->tag && a->bytes == b->bytes;
}

/* How many ranks entered the same operation under that number. Ranks of the
 * group weigh most; ranks of other groups of its name, which as a rule do the
 * same, only break ties. */
static long count_same(const struct plait_stuck_rank *r, int n,
                       const struct plait_stuck_group *g,
                       enum plait_series series,
                       const struct plait_stuck_op *op)
{
    uint64_t number = plait_tag_number(op->tag);
    long same = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < r[i].ngroups; k++) {
            const struct plait_stuck_group *other = &r[i].group[k];
            const struct plait_stuck_op *b;

            if (strcmp(other->name, g->name))
                continue;
            b = entered_as(&r[i], other, series, number);
            if (b && same_op(op, b))
                same += other->first == g->first ? n + 1 : 1;
        }
    return same;
}

/* The rank whose operation is shared by the fewest; the last of several. */
static void find_odd(const struct plait_stuck_rank *r, int n,
                     const struct plait_stuck_group *g,
                     const struct plait_stuck_op *given,
                     struct plait_verdict *v)
{
    enum plait_series series = series_of(given);
    uint64_t number = plait_tag_number(given->tag);
    long fewest = -1, most = 0;

    for (int i = 0; i < n; i++) {
        const struct plait_stuck_op *a = entered_as(&r[i], g, series, number);
        long same = a ? count_same(r, n, g, series, a) : 0;

        if (a && (fewest < 0 || same <= fewest)) {
            fewest = same;
            v->guilty = i;
            v->other = *a;
        }
        if (a && same > most) {
            most = same;
            v->witness = i;
            v->op = *a;
        }
    }
    v->group = (int)(find_group(&r[v->witness], g) - r[v->witness].group);
}

/* Whether some rank of the group entered another operation under the number of
 * the one that rank w waits in. */
static bool is_mixed(const struct plait_stuck_rank *r, int n, int w,
                     struct plait_verdict *v)
{
    const struct plait_stuck_group *g = &r[w].group[r[w].waits];
    enum plait_series series = series_of(&r[w].in);

    if (series == PLAIT_SERIES_MESSAGE)
        return false;
    for (int i = 0; i < n; i++) {
        const struct plait_stuck_op *op =
            entered_as(&r[i], g, series, plait_tag_number(r[w].in.tag));

        if (!op || same_op(op, &r[w].in))
            continue;
        v->kind = PLAIT_VERDICT_MISMATCH;
        find_odd(r, n, g, &r[w].in, v);
        return true;
    }
    return false;
}

/* -- the walk ------------------------------------------------------------ */

static bool in_message(const struct plait_stuck_rank *r)
{
    return series_of(&r->in) == PLAIT_SERIES_MESSAGE;
}

static int group_size(const struct plait_stuck_rank *r)
{
    return r->group[r->waits].size;
}

/* Which of two waits is the better evidence: a collective rather than a
 * message, a small group rather than a large one. */
static bool is_better(const struct plait_stuck_rank *a,
                      const struct plait_stuck_rank *b)
{
    if (in_message(a) != in_message(b))
        return in_message(b);
    return group_size(a) < group_size(b);
}

static void reach(struct walk *w, int i, int via)
{
    if (w->reached[i] && is_better(&w->rank[via], &w->rank[w->via[i]]))
        w->via[i] = via;
    if (w->reached[i])
        return;
    w->reached[i] = true;
    w->via[i] = via;
    w->queue[w->tail++] = i;
}

/* Reach the ranks that have not entered the collective that rank i waits in. A
 * member of which nothing is known counts as not having entered. */
static void expand_collective(struct walk *w, int i)
{
    const struct plait_stuck_rank *r = &w->rank[i];
    const struct plait_stuck_group *g = &r->group[r->waits];
    enum plait_series series = series_of(&r->in);

    for (int k = 0; k < w->n; k++) {
        const struct plait_stuck_rank *other = &w->rank[k];
        const struct plait_stuck_group *theirs = find_group(other, g);

        if (waits_alike(r, other))
            w->expanded[k] = true;
        else if (theirs &&
                 theirs->entered[series] < plait_tag_number(r->in.tag))
            reach(w, k, i);
    }
}

/* Reach the other rank of the message. Where no rank is known to have its
 * index, it is one of which nothing is known; of several, nobody knows which.
 */
static void expand_message(struct walk *w, int i)
{
    const struct plait_stuck_rank *r = &w->rank[i];
    const struct plait_stuck_group *g = &r->group[r->waits];
    int unknown = -1, nunknown = 0;

    if (r->peer < 0 || r->peer >= g->size)
        return;
    for (int k = 0; k < w->n; k++) {
        const struct plait_stuck_group *theirs = find_group(&w->rank[k], g);

        if (theirs && theirs->index == r->peer) {
            reach(w, k, i);
            return;
        }
        if (!theirs && w->rank[k].state == PLAIT_STUCK_UNKNOWN) {
            unknown = k;
            nunknown++;
        }
    }
    if (nunknown == 1)
        reach(w, unknown, i);
}

static void expand_rank(struct walk *w, int i)
{
    const struct plait_stuck_rank *r = &w->rank[i];

    if (w->expanded[i] || !is_waiting(r))
        return;
    w->expanded[i] = true;
    if (in_message(r))
        expand_message(w, i);
    else
        expand_collective(w, i);
}

/* Which of two ranks that wait for nobody is to blame: one that is not running,
 * else the one that has been longest in its phase. */
static bool is_worse(const struct plait_stuck_rank *a,
                     const struct plait_stuck_rank *b)
{
    bool bad = a->state != PLAIT_STUCK_RUNS;

    if (bad != (b->state != PLAIT_STUCK_RUNS))
        return bad;
    return a->phase_age > b->phase_age;
}

/* The rank that the others wait for; -1: every rank waits for another. */
static int walk_waits(struct walk *w)
{
    int guilty = -1;

    for (int i = 0; i < w->n; i++)
        expand_rank(w, i);
    while (w->head < w->tail) {
        int i = w->queue[w->head++];

        expand_rank(w, i);
        if (!is_waiting(&w->rank[i]) &&
            (guilty < 0 || is_worse(&w->rank[i], &w->rank[guilty])))
            guilty = i;
    }
    return guilty;
}

/* -- verdicts ------------------------------------------------------------ */

static int oldest(const struct plait_stuck_rank *r, int n, bool waiting)
{
    int most = -1;

    for (int i = 0; i < n; i++) {
        if (is_waiting(&r[i]) != waiting)
            continue;
        if (most < 0 || (waiting ? r[i].wait_age > r[most].wait_age
                                 : is_worse(&r[i], &r[most])))
            most = i;
    }
    return most;
}

static void count_waiting(const struct plait_stuck_rank *r, int n,
                          struct plait_verdict *v)
{
    for (int i = 0; i < n; i++) {
        if (i == v->guilty || !is_waiting(&r[i]))
            continue;
        v->waiting++;
        if (r[i].wait_age > v->age)
            v->age = r[i].wait_age;
    }
}

static void accuse(const struct plait_stuck_rank *r, int guilty, int witness,
                   struct plait_verdict *v)
{
    const struct plait_stuck_rank *w = &r[witness];

    v->guilty = guilty;
    v->witness = witness;
    v->group = w->waits;
    v->op = w->in;
}

/* A rank that is dead, stopped or silent explains the hang; no search is
 * needed. */
static bool judge_states(const struct plait_stuck_rank *r, int n,
                         struct plait_verdict *v)
{
    static const enum plait_stuck_state order[] = {
        PLAIT_STUCK_DEAD, PLAIT_STUCK_STOPPED, PLAIT_STUCK_SILENT};

    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < n; i++) {
            if (r[i].state != order[k])
                continue;
            if (v->guilty >= 0)
                v->alike++;
            else
                v->guilty = i;
        }
        if (v->guilty >= 0) {
            v->kind = PLAIT_VERDICT_STATE;
            return true;
        }
    }
    return false;
}

/* A rank that has left the collective in which rank i still waits, though all
 * have entered it. It is blamed only where no more ranks have left than still
 * wait: otherwise the collective is probably complete. -1: none. */
static int who_left(const struct plait_stuck_rank *r, int n, int i)
{
    const struct plait_stuck_group *g = &r[i].group[r[i].waits];
    enum plait_series series = series_of(&r[i].in);
    int gone = 0, there = 0, who = -1;

    if (series == PLAIT_SERIES_MESSAGE)
        return -1;
    for (int k = 0; k < n; k++) {
        const struct plait_stuck_group *theirs = find_group(&r[k], g);

        if (!theirs)
            continue;
        if (theirs->entered[series] < plait_tag_number(r[i].in.tag))
            return -1;
        if (waits_alike(&r[i], &r[k])) {
            there++;
        } else {
            gone++;
            who = k;
        }
    }
    return gone <= there ? who : -1;
}

static bool judge_left(const struct plait_stuck_rank *r, int n,
                       struct plait_verdict *v)
{
    for (int i = 0; i < n; i++) {
        int who = is_waiting(&r[i]) ? who_left(r, n, i) : -1;

        if (who < 0)
            continue;
        accuse(r, who, i, v);
        v->kind = PLAIT_VERDICT_LEFT;
        return true;
    }
    return false;
}

/* All ranks wait, but some have sent data that is not acknowledged. A
 * collective is complete for the ranks that its last message reached; they then
 * seem to have left it or to be ahead, so the links are blamed first. */
static bool judge_links(const struct plait_stuck_rank *r, int n,
                        struct plait_verdict *v)
{
    for (int i = 0; i < n; i++) {
        if (!is_waiting(&r[i]) || r[i].unanswered <= 0)
            continue;
        if (v->witness >= 0)
            v->alike++;
        else
            v->witness = i;
    }
    if (v->witness < 0)
        return false;
    v->kind = PLAIT_VERDICT_LINKS;
    return true;
}

/* -- circles ------------------------------------------------------------- */

/* Whether the rank has entered `op` in its group of that name. */
static bool has_entered(const struct plait_stuck_rank *r, const char *name,
                        const struct plait_stuck_op *op)
{
    for (int i = 0; i < r->ngroups; i++)
        if (!strcmp(r->group[i].name, name) &&
            r->group[i].entered[series_of(op)] >= plait_tag_number(op->tag))
            return true;
    return false;
}

/* How many other ranks wait where rank i waits but have entered `op`, in a
 * group called `name`, before. The more they are, the more likely rank i has
 * skipped it. */
static int count_company(const struct plait_stuck_rank *r, int n, int i,
                         const char *name, const struct plait_stuck_op *op)
{
    int company = 0;

    for (int k = 0; k < n; k++)
        company +=
            k != i && is_waiting(&r[k]) && r[k].in.tag == r[i].in.tag &&
            !strcmp(r[k].group[r[k].waits].name, r[i].group[r[i].waits].name) &&
            has_entered(&r[k], name, op);
    return company;
}

/* Whether no other rank has entered what rank i waits in. */
static bool is_strange(const struct plait_stuck_rank *r, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (k != i && has_entered(&r[k], r[i].group[r[i].waits].name, &r[i].in))
            return false;
    return true;
}

/* Who of the ranks that wait for each other is to blame: the rank that skipped
 * what others have entered, else one that waits in what no other rank has
 * entered; -1: none. */
static int break_circle(const struct walk *w)
{
    int strange = -1, who = -1, most = 0;

    for (int q = 0; q < w->tail; q++) {
        int i = w->queue[q];
        const struct plait_stuck_rank *from = &w->rank[w->via[i]];
        int company;

        if (in_message(from))
            continue;
        company = count_company(w->rank, w->n, i, from->group[from->waits].name,
                                &from->in);
        if (company > most) {
            most = company;
            who = i;
        }
        if (strange < 0 && is_strange(w->rank, w->n, i))
            strange = i;
    }
    return who >= 0 ? who : strange;
}

static void judge_circle(const struct walk *w, struct plait_verdict *v)
{
    int guilty = break_circle(w);

    v->kind = guilty < 0 ? PLAIT_VERDICT_CYCLE : PLAIT_VERDICT_BEHIND;
    guilty = guilty < 0 ? w->queue[0] : guilty;
    accuse(w->rank, guilty, w->via[guilty], v);
}

static void judge_walk(struct walk *w, struct plait_verdict *v)
{
    const struct plait_stuck_rank *r = w->rank;
    int guilty = walk_waits(w), first = oldest(r, w->n, true);

    for (int i = 0; i < w->n; i++)
        if (is_waiting(&r[i]) && is_mixed(r, w->n, i, v))
            return;
    if ((guilty < 0 || r[guilty].state == PLAIT_STUCK_UNKNOWN) &&
        judge_links(r, w->n, v))
        return;
    if (guilty >= 0) {
        accuse(r, guilty, w->via[guilty], v);
        v->kind = series_of(&v->op) == PLAIT_SERIES_MESSAGE
                      ? PLAIT_VERDICT_MESSAGE
                      : PLAIT_VERDICT_BEHIND;
    } else if (judge_left(r, w->n, v)) {
        return;
    } else if (w->tail > 0) {
        judge_circle(w, v);
    } else {
        accuse(r, -1, first, v);
        v->kind = PLAIT_VERDICT_TRANSFER;
    }
}

static int judge_running(const struct plait_stuck_rank *r, int n,
                         struct plait_verdict *v)
{
    struct walk w = {.rank = r, .n = n};

    if (oldest(r, n, true) < 0) {
        v->guilty = oldest(r, n, false);
        v->kind = PLAIT_VERDICT_ALONE;
        for (int i = 0; i < n; i++)
            v->alike += i != v->guilty && r[i].state == PLAIT_STUCK_RUNS &&
                        r[i].phase == r[v->guilty].phase;
        return 0;
    }
    w.reached = calloc((size_t)n, sizeof(*w.reached));
    w.expanded = calloc((size_t)n, sizeof(*w.expanded));
    w.via = calloc((size_t)n, sizeof(*w.via));
    w.queue = calloc((size_t)n, sizeof(*w.queue));
    if (w.reached && w.expanded && w.via && w.queue)
        judge_walk(&w, v);
    else
        v->kind = PLAIT_VERDICT_NOTHING;
    free(w.reached);
    free(w.expanded);
    free(w.via);
    free(w.queue);
    if (v->kind != PLAIT_VERDICT_NOTHING)
        return 0;
    errno = ENOMEM;
    return -1;
}

int plait_stuck_judge(const struct plait_stuck_rank *ranks, int n,
                      struct plait_verdict *verdict)
{
    struct plait_verdict v = {.guilty = -1, .witness = -1, .group = -1};
    int rc = 0;

    if (n > 0 && !judge_states(ranks, n, &v))
        rc = judge_running(ranks, n, &v);
    if (rc < 0)
        return -1;
    count_waiting(ranks, n, &v);
    *verdict = v;
    return 0;
}
