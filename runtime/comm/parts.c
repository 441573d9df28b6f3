/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/parts.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/consensus.h"

struct place {
    uint64_t key;
    int at;
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->at - y->at;
}

int plait_classes_number(const uint64_t *keys, int n, int *class_of)
{
    struct place *all = calloc((size_t)n, sizeof(*all));
    int classes = 0, first = 0;

    if (!all)
        return -1;
    for (int i = 0; i < n; i++)
        all[i] = (struct place){keys[i], i};
    qsort(all, (size_t)n, sizeof(*all), by_key);
    for (int i = 0; i < n; i++) {
        if (i == 0 || all[i].key != all[i - 1].key)
            first = all[i].at;
        class_of[all[i].at] = first;
    }
    for (int i = 0; i < n; i++)
        class_of[i] = class_of[i] == i ? classes++ : class_of[class_of[i]];
    free(all);
    return classes;
}

/* The number of ranks in the smallest class. count[c->n] is 0 before and
 * after. */
static size_t fewest_of(const struct plait_classes *c, int ranks, int *count)
{
    int fewest = ranks;

    for (int r = 0; r < ranks; r++)
        count[c->of[r]]++;
    for (int i = 0; i < c->n; i++) {
        fewest = count[i] < fewest ? count[i] : fewest;
        count[i] = 0;
    }
    return (size_t)fewest;
}

/* Where a rank's part begins, and its size. `before`: how many ranks of its
 * class precede it. */
static size_t part_of(size_t size, size_t part, int before, size_t *n)
{
    size_t at = (size_t)before * part < size ? (size_t)before * part : size;

    *n = size - at < part ? size - at : part;
    return at;
}

int plait_comm_gather_parts(struct plait_comm *world,
                            const struct plait_classes *c, const void *mine,
                            size_t size, void *all, struct plait_error *err)
{
    int ranks = plait_comm_size(world), rank = plait_comm_rank(world), rc;
    int *count = calloc((size_t)c->n, sizeof(*count)), before = 0;
    size_t fewest = count ? fewest_of(c, ranks, count) : 1;
    size_t part = (size + fewest - 1) / fewest, at, n;
    char *own = calloc(1, part + 1), *parts = calloc((size_t)ranks, part + 1);

    rc = count && own && parts ? 0 : plait_errorf(err, "out of memory");
    rc = plait_error_consensus(world, rc, err);
    for (int r = 0; r < rank; r++)
        before += c->of[r] == c->of[rank];
    if (rc == 0 && part > 0) {
        at = part_of(size, part, before, &n);
        memcpy(own, (const char *)mine + at, n);
        if (plait_comm_host_all_gather(world, own, parts, part) < 0)
            rc = plait_errorf(err, "%s", plait_comm_error(world));
    }
    for (int r = 0; r < ranks && rc == 0; r++) {
        at = part_of(size, part, count[c->of[r]]++, &n);
        memcpy((char *)all + (size_t)c->of[r] * size + at,
               parts + (size_t)r * part, n);
    }
    free(count);
    free(own);
    free(parts);
    return rc;
}
