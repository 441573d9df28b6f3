/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/replica_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "topology/base/hash.h"

/* Elements that are read at a time, to stay in the processor's cache. */
#define CHUNK ((size_t)64 << 10)
#define HOST_NAME 64
/* More sets of ranks that have a slice than a rank is in. */
#define CLASSES_MOST (1 << 24)

/* The slices of this rank that are held by the same set of ranks form a class,
 * which has one hash. A class is named by a hash of its ranks. */
struct sum {
    uint64_t class, hash;
};

struct plait_replica_check {
    struct plait_comm *world;
    struct plait_queue *q;
    struct plait_replicas *replicas; /* NULL: one model */
    struct plait_rank_shard shard;
    int *class_of;    /* [shard.n] number of the class; -1: held here alone */
    int nclasses;     /* number of classes of this rank */
    int room;         /* the most classes of any rank */
    struct sum *mine; /* [room] */
    struct sum *all;  /* [ranks][room] */
    float *buffer;    /* [CHUNK] */
};

/* -- hashes ---------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return z ^ z >> 32;
}

/* A sum over all positions of the value mixed with the position, so that it
 * does not depend on how the array is cut. Four numbers make one term, so that
 * processors work on several at a time. */
uint64_t plait_replica_hash(const float *x, size_t first, size_t n)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < n; i += 4) {
        uint64_t pair[2] = {0, 0}, place = (first + i) / 4 + 1;
        size_t bytes = (n - i < 4 ? n - i : 4) * sizeof(*x);

        memcpy(pair, x + i, bytes);
        hash += mix(pair[0] + place * UINT64_C(0x9e3779b97f4a7c15)) ^
                mix(pair[1] - place * UINT64_C(0xc2b2ae3d27d4eb4f)) *
                    UINT64_C(0x165667b19e3779f9);
    }
    return hash;
}

static int hash_piece(struct plait_replica_check *c, int i, uint64_t *hash,
                      struct plait_error *err)
{
    const struct plait_optim_piece *p = &c->shard.pieces[i];
    uint64_t h = plait_slice_fingerprint(&c->shard.slices[i]);
    size_t n;

    for (size_t at = 0; at < p->count; at += n) {
        n = p->count - at < CHUNK ? p->count - at : CHUNK;
        if (plait_optim_read_piece(c->shard.optim, p, at, n, c->buffer) < 0)
            return plait_errorf(err,
                                "train.check_replicas: cannot copy from the "
                                "device: %s",
                                plait_optim_read_error(c->shard.optim));
        h += plait_replica_hash(c->buffer, at, n);
    }
    *hash = mix(h);
    return 0;
}

static int hash_all(struct plait_replica_check *c, struct plait_error *err)
{
    uint64_t hash = 0;

    for (int i = 0; i < c->room; i++)
        c->mine[i].hash = 0;
    for (int i = 0; i < c->shard.n; i++) {
        if (c->class_of[i] < 0)
            continue;
        if (hash_piece(c, i, &hash, err) < 0)
            return -1;
        c->mine[c->class_of[i]].hash += hash;
    }
    return 0;
}

/* -- classes --------------------------------------------------------------- */

/* The index of the class with this name, which is added if it is new. */
static int find_class(struct plait_replica_check *c, uint64_t class)
{
    for (int i = 0; i < c->nclasses; i++)
        if (c->mine[i].class == class)
            return i;
    c->mine[c->nclasses].class = class;
    return c->nclasses++;
}

static void sort_slices(struct plait_replica_check *c,
                        struct plait_slice_owners *owners, int *ranks)
{
    for (int i = 0; i < c->shard.n; i++) {
        int n = plait_slice_owners_find(
            owners, plait_slice_fingerprint(&c->shard.slices[i]), ranks);
        uint64_t name = plait_hash_bytes(PLAIT_HASH_START, ranks,
                                         (size_t)n * sizeof(*ranks));

        c->class_of[i] = n > 1 ? find_class(c, name ? name : 1) : -1;
    }
}

/* Collective. */
static int make_classes(struct plait_replica_check *c, struct plait_error *err)
{
    struct plait_slice_owners owners = {.ranks = 0};
    int *ranks = calloc((size_t)plait_comm_size(c->world), sizeof(*ranks));
    size_t most = 0;
    int rc;

    c->mine = calloc(c->shard.n + 1, sizeof(*c->mine));
    c->class_of = calloc(c->shard.n + 1, sizeof(*c->class_of));
    c->buffer = malloc(CHUNK * sizeof(*c->buffer));
    rc = c->mine && c->class_of && c->buffer && ranks
             ? 0
             : plait_errorf(err, "train.check_replicas: out of memory");
    rc = plait_error_consensus(c->world, rc, err);
    if (rc == 0)
        rc = plait_rank_shard_owners(&c->shard, c->world, &owners, err);
    if (rc == 0)
        sort_slices(c, &owners, ranks);
    plait_slice_owners_clear(&owners);
    free(ranks);
    if (rc == 0)
        rc = plait_greatest_count(c->world, (size_t)c->nclasses, CLASSES_MOST,
                                  &most, err);
    c->room = (int)most;
    return rc;
}

/* Collective: make room for as many sums as any rank has. */
static int make_room(struct plait_replica_check *c, struct plait_error *err)
{
    size_t n = (size_t)c->room + 1;
    struct sum *more = realloc(c->mine, n * sizeof(*more));

    if (more) {
        c->mine = more;
        for (size_t i = (size_t)c->nclasses; i < n; i++)
            more[i] = (struct sum){0, 0};
        c->all = calloc(n * plait_comm_size(c->world), sizeof(*c->all));
    }
    return plait_error_consensus(
        c->world,
        more && c->all
            ? 0
            : plait_errorf(err, "train.check_replicas: out of memory"),
        err);
}

struct plait_replica_check *
plait_replica_check_create(const struct plait_model *model,
                           const struct plait_optim *optim,
                           struct plait_error *err)
{
    struct plait_replica_check *c = calloc(1, sizeof(*c));
    struct plait_comm *world = model->mesh->world;
    int rc = c ? 0 : plait_errorf(err, "train.check_replicas: out of memory");

    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    c->world = world;
    c->q = model->mesh->q;
    c->replicas = plait_optim_replicas(optim);
    if (plait_rank_shard_list(&c->shard, model, optim, err) < 0 ||
        make_classes(c, err) < 0 || make_room(c, err) < 0)
        goto error;
    return c;
error:
    plait_replica_check_destroy(c);
    return NULL;
}

void plait_replica_check_destroy(struct plait_replica_check *c)
{
    int saved = errno;

    if (!c)
        return;
    plait_rank_shard_clear(&c->shard);
    free(c->class_of);
    free(c->mine);
    free(c->all);
    free(c->buffer);
    free(c);
    errno = saved;
}

/* -- the comparison -------------------------------------------------------- */

/* Rank r's sum of a class; NULL: it holds none of it. */
static const struct sum *sum_of(const struct plait_replica_check *c, int r,
                                uint64_t class)
{
    const struct sum *s = c->all + (size_t)r * c->room;

    for (int i = 0; i < c->room; i++)
        if (s[i].class == class)
            return &s[i];
    return NULL;
}

/* *members: how many ranks hold the class; *equal: how many of them have the
 * same hash. */
static void count_votes(const struct plait_replica_check *c,
                        const struct sum *one, int *equal, int *members)
{
    *equal = *members = 0;
    for (int r = 0; r < plait_comm_size(c->world); r++) {
        const struct sum *other = sum_of(c, r, one->class);

        *members += other != NULL;
        *equal += other && other->hash == one->hash;
    }
}

/* The first rank that disagrees with the majority of some class that it holds.
 * *fair: there is no majority, as between two ranks. -1: all agree. */
static int find_odd(const struct plait_replica_check *c, int *members,
                    bool *fair)
{
    int undecided = -1, of = 0, equal;

    for (int r = 0; r < plait_comm_size(c->world); r++)
        for (int i = 0; i < c->room; i++) {
            const struct sum *one = &c->all[(size_t)r * c->room + i];

            if (!one->class)
                continue;
            count_votes(c, one, &equal, members);
            if (2 * equal < *members) {
                *fair = false;
                return r;
            }
            if (2 * equal == *members && undecided < 0) {
                undecided = r;
                of = *members;
            }
        }
    *fair = true;
    *members = of;
    return undecided;
}

/* All ranks know that they differ. Only now the names of the nodes are
 * gathered. */
static int describe(struct plait_replica_check *c, int64_t step, int odd,
                    int members, bool fair, struct plait_error *err)
{
    char mine[HOST_NAME] = "";
    char(*names)[HOST_NAME] =
        calloc((size_t)plait_comm_size(c->world), sizeof(*names));
    int rc = plait_error_consensus(
        c->world, names ? 0 : plait_errorf(err, "out of memory"), err);

    gethostname(mine, sizeof(mine) - 1);
    if (rc == 0 &&
        plait_comm_host_all_gather(c->world, mine, names, sizeof(mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    if (rc == 0 && plait_comm_rank(c->world) == 0) {
        if (fair)
            plait_errorf(err,
                         "train.check_replicas: after step %" PRId64
                         " the %d ranks that hold the same as rank %d (%s) "
                         "differ, one half from the other; the run ends, and "
                         "nothing was saved since they last agreed",
                         step, members, odd, names[odd]);
        else
            plait_errorf(err,
                         "train.check_replicas: after step %" PRId64
                         " rank %d (%s) has other weights or optimizer state "
                         "than most of the %d ranks that should hold the "
                         "same; the run ends, and nothing was saved since "
                         "they last agreed",
                         step, odd, names[odd], members);
    }
    free(names);
    errno = EUCLEAN;
    return -1;
}

int plait_replica_check_run(struct plait_replica_check *c, int64_t step,
                            struct plait_error *err)
{
    int members = 0, odd, rc = 0;
    bool fair;

    if (c->room == 0)
        return 0;
    if (c->replicas && plait_replicas_settle(c->replicas) < 0)
        rc = plait_errorf(err, "%s", plait_queue_error(c->q));
    if (rc == 0)
        rc = hash_all(c, err);
    if (plait_error_consensus(c->world, rc, err) < 0)
        return -1;
    if (plait_comm_host_all_gather(c->world, c->mine, c->all,
                                   c->room * sizeof(*c->mine)) < 0)
        return plait_errorf(err, "%s", plait_comm_error(c->world));
    odd = find_odd(c, &members, &fair);
    return odd < 0 ? 0 : describe(c, step, odd, members, fair, err);
}

/* -- one hash of all ------------------------------------------------------- */

int plait_replica_check_state(struct plait_replica_check *c, uint64_t *hash,
                              struct plait_error *err)
{
    int size = plait_comm_size(c->world), rc = 0;
    uint64_t mine = 0, one, *all = calloc((size_t)size, sizeof(*all));

    if (!all)
        rc = plait_errorf(err, "train.deterministic: out of memory");
    for (int i = 0; rc == 0 && i < c->shard.n; i++) {
        rc = hash_piece(c, i, &one, err);
        mine += one;
    }
    rc = plait_error_consensus(c->world, rc, err);
    if (rc == 0 &&
        plait_comm_host_all_gather(c->world, &mine, all, sizeof(mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(c->world));
    if (rc == 0)
        *hash = plait_hash_bytes(PLAIT_HASH_START, all,
                                 (size_t)size * sizeof(*all));
    free(all);
    return rc;
}
