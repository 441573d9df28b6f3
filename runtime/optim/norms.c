/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/norms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "topology/base/hash.h"

/* More slices than a rank has. */
enum { SLICES_MOST = 1 << 24 };

struct plait_tensor_sums {
    struct plait_comm *world;
    int nslices;
    bool *counts;
    int *index;    /* [nslices] the number of its tensor, the same on all
                    * ranks */
    int ntensors;  /* of the whole model */
    double *whole; /* [ntensors][2] */
};

static uint64_t hash_name(const struct plait_optim_slice *slice)
{
    return plait_hash_text(PLAIT_HASH_START, slice->tensor->name);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Sorts, and removes duplicates and 0; returns how many are left. */
static size_t make_unique(uint64_t *list, size_t n)
{
    size_t used = 0;

    qsort(list, n, sizeof(*list), by_value);
    for (size_t i = 0; i < n; i++)
        if (list[i] && (used == 0 || list[used - 1] != list[i]))
            list[used++] = list[i];
    return used;
}

/* The hashes of all ranks' tensor names, sorted and malloc'ed. Collective. */
static int gather_names(const struct plait_tensor_sums *s,
                        const struct plait_optim_slice *slices, uint64_t **all,
                        size_t *n, struct plait_error *err)
{
    uint64_t *mine;
    size_t room;
    int rc;

    *all = NULL;
    if (plait_greatest_count(s->world, (size_t)s->nslices, SLICES_MOST, &room,
                             err) < 0)
        return -1;
    mine = calloc(room + 1, sizeof(*mine));
    *n = room * plait_comm_size(s->world);
    *all = calloc(*n + 1, sizeof(**all));
    rc = mine && *all ? 0 : plait_errorf(err, "optimizer: out of memory");
    rc = plait_error_consensus(s->world, rc, err);
    for (int i = 0; rc == 0 && i < s->nslices; i++)
        mine[i] = hash_name(&slices[i]);
    if (rc == 0 && room > 0 &&
        plait_comm_host_all_gather(s->world, mine, *all, room * sizeof(*mine)) <
            0)
        rc = plait_errorf(err, "optimizer: %s", plait_comm_error(s->world));
    free(mine);
    if (rc == 0)
        *n = make_unique(*all, *n);
    return rc;
}

static int allocate(struct plait_tensor_sums *s, const bool *counts,
                    struct plait_error *err)
{
    s->counts = calloc(s->nslices + 1, sizeof(*s->counts));
    s->index = calloc(s->nslices + 1, sizeof(*s->index));
    if (!s->counts || !s->index)
        return plait_errorf(err, "optimizer: out of memory");
    memcpy(s->counts, counts, s->nslices * sizeof(*counts));
    return 0;
}

static int find_tensors(struct plait_tensor_sums *s,
                        const struct plait_optim_slice *slices,
                        struct plait_error *err)
{
    uint64_t *names, hash;
    size_t n = 0;
    int rc = gather_names(s, slices, &names, &n, err);

    if (rc == 0) {
        s->ntensors = (int)n;
        s->whole = calloc(n + 1, PLAIT_SUMS_PER_TENSOR * sizeof(*s->whole));
        rc = s->whole ? 0 : plait_errorf(err, "optimizer: out of memory");
        rc = plait_error_consensus(s->world, rc, err);
    }
    for (int i = 0; rc == 0 && i < s->nslices; i++) {
        const uint64_t *at;

        hash = hash_name(&slices[i]);
        at = bsearch(&hash, names, n, sizeof(*names), by_value);
        s->index[i] = (int)(at - names);
    }
    free(names);
    return rc;
}

struct plait_tensor_sums *plait_tensor_sums_create(
    struct plait_comm *world, const struct plait_optim_slice *slices,
    const bool *counts, int nslices, struct plait_error *err)
{
    struct plait_tensor_sums *s = calloc(1, sizeof(*s));
    struct plait_error unasked;
    int rc;

    err = err ? err : &unasked;
    if (s) {
        s->world = world;
        s->nslices = nslices;
    }
    rc = s ? allocate(s, counts, err)
           : plait_errorf(err, "optimizer: out of memory");
    if (plait_error_consensus(world, rc, err) == 0 &&
        find_tensors(s, slices, err) == 0)
        return s;
    plait_tensor_sums_destroy(s);
    return NULL;
}

void plait_tensor_sums_destroy(struct plait_tensor_sums *s)
{
    int saved = errno;

    if (!s)
        return;
    free(s->counts);
    free(s->index);
    free(s->whole);
    free(s);
    errno = saved;
}

int plait_tensor_sums_reduce(struct plait_tensor_sums *s, double *sums)
{
    size_t n = (size_t)s->ntensors * PLAIT_SUMS_PER_TENSOR;

    memset(s->whole, 0, n * sizeof(*s->whole));
    for (int i = 0; i < s->nslices; i++)
        for (int k = 0; k < PLAIT_SUMS_PER_TENSOR && s->counts[i]; k++)
            s->whole[s->index[i] * PLAIT_SUMS_PER_TENSOR + k] +=
                sums[i * PLAIT_SUMS_PER_TENSOR + k];
    if (plait_comm_host_all_reduce(s->world, s->whole, n, PLAIT_SUM) < 0)
        return -1;
    for (int i = 0; i < s->nslices; i++)
        for (int k = 0; k < PLAIT_SUMS_PER_TENSOR; k++)
            sums[i * PLAIT_SUMS_PER_TENSOR + k] =
                s->whole[s->index[i] * PLAIT_SUMS_PER_TENSOR + k];
    return 0;
}
