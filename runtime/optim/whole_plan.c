/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/whole_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/agree.h"
#include "topology/job/optimizers.h"

/* Every rank sends all others a record of each of its pieces, once, when the
 * optimizer is made. Then each has the same list, sorts it by an order in which
 * no two records are equal, and goes through it alone: no rank tells another
 * what to do, and all come to the same plan, as long as nothing but the records
 * and the size of the group decides. Of that plan a rank keeps what concerns
 * itself.
 *
 * A matrix gets the owner that has least work so far among its holders
 * (plait_optim_takes, by which `plait estimate` finds out the fullest rank,
 * too). Matrices with few holders choose first, as they have the least choice;
 * among those, the expensive ones, which are the harder to balance. */

/* More pieces than a rank has. */
enum { PIECES_MOST = 1 << 20 };

/* One rank's piece of one matrix, as sent to all ranks. */
struct record {
    char name[96]; /* "": no piece, the rank has fewer than others */
    uint64_t rows, cols, together, shard_first, first, count;
    int32_t rank, piece;
};

struct planner {
    struct plait_whole_plan *plan;
    const struct record *record;
    int rank;
    double *load; /* [size] cost of the matrices that each rank owns so far */
    int *rounds;  /* [size] number of those matrices */
    int nparts, nholders;
};

/* One matrix: its pieces are records begin .. end - 1. */
struct group {
    int begin, end;
    double cost;
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Orders by name, piece and rank; records without a piece come last. */
static int compare_records(const void *left, const void *right)
{
    const struct record *a = left, *b = right;
    int by;

    if (!a->name[0] || !b->name[0])
        return !a->name[0] - !b->name[0];
    by = strcmp(a->name, b->name);
    if (by == 0)
        by = compare_numbers(a->shard_first, b->shard_first);
    if (by == 0)
        by = compare_numbers(a->first, b->first);
    return by ? by : (a->rank > b->rank) - (a->rank < b->rank);
}

/* The order in which matrices get owners: those with the fewest holders first,
 * then the expensive ones. */
static int compare_groups(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    int a_holders = a->end - a->begin, b_holders = b->end - b->begin;

    if (a_holders != b_holders)
        return a_holders - b_holders;
    if (a->cost != b->cost)
        return a->cost < b->cost ? 1 : -1;
    return a->begin - b->begin;
}

static bool same_piece(const struct record *a, const struct record *b)
{
    return strcmp(a->name, b->name) == 0 && a->shard_first == b->shard_first &&
           a->first == b->first;
}

static struct record make_record(const struct plait_whole_piece *p, int rank,
                                 int piece)
{
    const struct plait_tensor *t = p->tensor;
    struct record r = {.rows = t->shape[0],
                       .cols = t->shape[1],
                       .together = p->together ? p->together : t->shape[0],
                       .shard_first = t->tp_axis < 0 ? 0 : t->local_first,
                       .first = p->first,
                       .count = p->count,
                       .rank = rank,
                       .piece = piece};

    snprintf(r.name, sizeof(r.name), "%s", t->name);
    return r;
}

/* What a rank has sent: the pieces are its own, and names end. */
static void take_records(struct record *records, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) {
        records[i].rank = rank;
        records[i].name[sizeof(records[i].name) - 1] = '\0';
    }
}

/* The pieces of all ranks, sorted; *n: how many there are. NULL with err. */
static struct record *collect_records(struct plait_comm *comm,
                                      const struct plait_whole_piece *pieces,
                                      int mine, int *n, struct plait_error *err)
{
    int size = plait_comm_size(comm);
    struct record *own, *all = NULL;
    size_t most;
    double failed;

    if (plait_greatest_count(comm, (size_t)mine, PIECES_MOST, &most, err) < 0)
        return NULL;
    own = calloc(most + 1, sizeof(*own));
    all = calloc(most * (size_t)size + 1, sizeof(*all));
    for (int i = 0; own && i < mine; i++)
        own[i] = make_record(&pieces[i], plait_comm_rank(comm), i);
    failed = !own || !all;
    if (plait_comm_host_all_reduce(comm, &failed, 1, PLAIT_MAX) < 0 ||
        failed > 0 ||
        plait_comm_host_all_gather(comm, own, all, most * sizeof(*own)) < 0) {
        plait_errorf(err, "cannot plan who owns which matrix: %s",
                     plait_comm_error(comm));
        free(own);
        free(all);
        return NULL;
    }
    for (size_t r = 0; r < (size_t)size && most > 0; r++)
        take_records(all + r * most, most, (int)r);
    memcpy(all + (size_t)plait_comm_rank(comm) * most, own,
           most * sizeof(*own));
    free(own);
    qsort(all, most * (size_t)size, sizeof(*all), compare_records);
    for (*n = 0; *n < (int)most * size && all[*n].name[0];)
        (*n)++;
    return all;
}

/* The holder with the least work so far, among records begin .. end - 1. */
static int choose_owner(const struct planner *p, int begin, int end)
{
    int owner = p->record[begin].rank;

    for (int i = begin + 1; i < end; i++) {
        int rank = p->record[i].rank;

        if (plait_optim_takes(p->load[rank], rank, p->load[owner], owner))
            owner = rank;
    }
    return owner;
}

/* Prefers near ranks: they are more likely on the same node. */
static int choose_source(const struct planner *p, int begin, int end, int owner)
{
    int source = p->record[begin].rank;

    for (int i = begin + 1; i < end; i++)
        if (abs(p->record[i].rank - owner) < abs(source - owner))
            source = p->record[i].rank;
    return source;
}

static void add_part(struct planner *p, int begin, int end, int source)
{
    const struct record *r = &p->record[begin];
    struct plait_whole_part *part = &p->plan->parts[p->nparts++];
    int *holder = p->plan->holders + p->nholders;

    *part = (struct plait_whole_part){.shard_first = r->shard_first,
                                      .first = r->first,
                                      .count = r->count,
                                      .source = source,
                                      .holders = end - begin,
                                      .holder = holder};
    for (int i = begin; i < end; i++)
        holder[i - begin] = p->record[i].rank;
    p->nholders += end - begin;
}

/* Plans the equal pieces begin .. end - 1 of a matrix that `owner` owns. */
static void add_piece(struct planner *p, int begin, int end, int owner)
{
    struct plait_whole_plan *plan = p->plan;
    int source = choose_source(p, begin, end, owner);

    if (owner == p->rank)
        add_part(p, begin, end, source);
    for (int i = begin; i < end; i++) {
        if (p->record[i].rank != p->rank)
            continue;
        if (owner == p->rank)
            plan->piece[plan->nowned] = p->record[i].piece;
        else
            plan->share[plan->nshares++] =
                (struct plait_whole_share){.piece = p->record[i].piece,
                                           .owner = owner,
                                           .round = p->rounds[owner],
                                           .source = source == p->rank};
    }
}

static int missing_elements(const struct record *r, uint64_t there,
                            struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err, "%s: the ranks hold %ju of its %ju x %ju elements",
                        r->name, (uintmax_t)there, (uintmax_t)r->rows,
                        (uintmax_t)r->cols);
}

static int add_matrix(struct planner *p, const struct group *g,
                      struct plait_error *err)
{
    const struct record *r = p->record;
    struct plait_whole_plan *plan = p->plan;
    int owner = choose_owner(p, g->begin, g->end), first_part = p->nparts;
    int next;
    uint64_t there = 0;

    for (int i = g->begin; i < g->end; i = next) {
        for (next = i + 1; next < g->end && same_piece(&r[i], &r[next]);)
            next++;
        add_piece(p, i, next, owner);
        there += r[i].count;
    }
    if (there != r[g->begin].rows * r[g->begin].cols)
        return missing_elements(&r[g->begin], there, err);
    if (owner == p->rank)
        plan->owned[plan->nowned++] = (struct plait_whole_owned){
            .part = plan->parts + first_part, .nparts = p->nparts - first_part};
    p->load[owner] += g->cost;
    p->rounds[owner]++;
    return 0;
}

static int compare_shares(const void *left, const void *right)
{
    const struct plait_whole_share *a = left, *b = right;

    if (a->round != b->round)
        return a->round - b->round;
    return a->owner - b->owner;
}

static int allocate_plan(struct planner *p, int size, int records, int pieces)
{
    struct plait_whole_plan *plan = p->plan;

    p->load = calloc(size, sizeof(*p->load));
    p->rounds = calloc(size, sizeof(*p->rounds));
    plan->piece = calloc(pieces + 1, sizeof(*plan->piece));
    plan->owned = calloc(pieces + 1, sizeof(*plan->owned));
    plan->share = calloc(pieces + 1, sizeof(*plan->share));
    plan->holders = calloc(records + 1, sizeof(*plan->holders));
    plan->parts = calloc(records + 1, sizeof(*plan->parts));
    return p->load && p->rounds && plan->piece && plan->owned && plan->share &&
                   plan->holders && plan->parts
               ? 0
               : -1;
}

/* Finds the records of each matrix; returns the number of matrices. */
static int find_groups(const struct record *r, int n, struct group *groups)
{
    int end, count = 0;

    for (int begin = 0; begin < n; begin = end) {
        for (end = begin + 1; end < n && !strcmp(r[begin].name, r[end].name);)
            end++;
        groups[count++] =
            (struct group){begin, end,
                           plait_optim_matrix_cost(r[begin].rows, r[begin].cols,
                                                   r[begin].together)};
    }
    qsort(groups, count, sizeof(*groups), compare_groups);
    return count;
}

static int fill_plan(struct planner *p, int n, struct plait_error *err)
{
    struct group *groups = calloc(n + 1, sizeof(*groups));
    int count, rc = 0;

    if (!groups)
        return plait_errorf(err, "out of memory");
    count = find_groups(p->record, n, groups);
    for (int i = 0; i < count && rc == 0; i++)
        rc = add_matrix(p, &groups[i], err);
    free(groups);
    if (rc < 0)
        return -1;
    qsort(p->plan->share, p->plan->nshares, sizeof(*p->plan->share),
          compare_shares);
    return 0;
}

int plait_whole_plan_make(struct plait_whole_plan *plan,
                          struct plait_comm *comm,
                          const struct plait_whole_piece *pieces, int n,
                          struct plait_error *err)
{
    struct planner p = {.plan = plan, .rank = plait_comm_rank(comm)};
    struct record *records;
    int nrecords = 0, rc = -1;

    *plan = (struct plait_whole_plan){0};
    records = collect_records(comm, pieces, n, &nrecords, err);
    p.record = records;
    if (records && allocate_plan(&p, plait_comm_size(comm), nrecords, n) < 0)
        plait_errorf(err, "cannot plan who owns which matrix: out of memory");
    else if (records)
        rc = fill_plan(&p, nrecords, err);
    free(records);
    free(p.load);
    free(p.rounds);
    if (rc < 0)
        plait_whole_plan_clear(plan);
    return rc;
}

void plait_whole_plan_clear(struct plait_whole_plan *plan)
{
    int saved = errno;

    free(plan->piece);
    free(plan->owned);
    free(plan->share);
    free(plan->holders);
    free(plan->parts);
    *plan = (struct plait_whole_plan){0};
    errno = saved;
}
