/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/slice_owners.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/parts.h"
#include "topology/base/hash.h"

/* More slices than a rank has. */
enum { SLICES_MOST = 1 << 24 };

static int by_hash(const void *a, const void *b)
{
    const struct plait_slice_entry *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->list - y->list;
}

/* Number the distinct lists: which ranks have the same one. */
static int number_lists(struct plait_slice_owners *o, struct plait_comm *world,
                        const uint64_t *hashes, int n, struct plait_error *err)
{
    size_t ranks = (size_t)plait_comm_size(world);
    uint64_t mine =
        plait_hash_bytes(PLAIT_HASH_START, hashes, (size_t)n * sizeof(*hashes));
    uint64_t *lists = calloc(ranks, sizeof(*lists));
    int rc;

    o->ranks = (int)ranks;
    o->list_of = calloc(ranks, sizeof(*o->list_of));
    rc = lists && o->list_of ? 0
                             : plait_errorf(err, "checkpoint: out of memory");
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0 &&
        plait_comm_host_all_gather(world, &mine, lists, sizeof(mine)) < 0)
        rc = plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    if (rc == 0) {
        o->nlists = plait_classes_number(lists, o->ranks, o->list_of);
        rc = plait_error_consensus(
            world,
            o->nlists < 0 ? plait_errorf(err, "checkpoint: out of memory") : 0,
            err);
    }
    free(lists);
    return rc;
}

/* lists[nlists][room], padded with 0 at the end of each. */
static void sort_entries(struct plait_slice_owners *o, const uint64_t *lists,
                         size_t room)
{
    for (size_t i = 0; i < (size_t)o->nlists * room; i++)
        if (lists[i])
            o->all[o->total++] =
                (struct plait_slice_entry){lists[i], (int)(i / room)};
    qsort(o->all, o->total, sizeof(*o->all), by_hash);
}

static int gather_lists(struct plait_slice_owners *o, struct plait_comm *world,
                        const uint64_t *hashes, int n, size_t room,
                        struct plait_error *err)
{
    size_t lists = (size_t)o->nlists;
    uint64_t *mine = calloc(room + 1, sizeof(*mine));
    uint64_t *all = calloc(lists * room + 1, sizeof(*all));
    int rc;

    o->all = calloc(lists * room + 1, sizeof(*o->all));
    o->chosen = calloc(lists, sizeof(*o->chosen));
    rc = mine && all && o->all && o->chosen
             ? 0
             : plait_errorf(err, "checkpoint: out of memory");
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0 && n > 0)
        memcpy(mine, hashes, (size_t)n * sizeof(*mine));
    if (rc == 0)
        rc = plait_comm_gather_parts(
            world, &(struct plait_classes){o->list_of, o->nlists}, mine,
            room * sizeof(*mine), all, err);
    if (rc == 0)
        sort_entries(o, all, room);
    free(mine);
    free(all);
    return rc;
}

int plait_slice_owners_gather(struct plait_slice_owners *o,
                              struct plait_comm *world, const uint64_t *hashes,
                              int n, struct plait_error *err)
{
    size_t room;

    *o = (struct plait_slice_owners){.ranks = 0};
    if (plait_greatest_count(world, (size_t)n, SLICES_MOST, &room, err) < 0 ||
        number_lists(o, world, hashes, n, err) < 0)
        return -1;
    return gather_lists(o, world, hashes, n, room, err);
}

void plait_slice_owners_clear(struct plait_slice_owners *o)
{
    free(o->list_of);
    free(o->all);
    free(o->chosen);
    *o = (struct plait_slice_owners){.ranks = 0};
}

/* The first entry whose hash is not smaller. */
static size_t first_of(const struct plait_slice_owners *o, uint64_t hash)
{
    size_t low = 0, high = o->total, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (o->all[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int plait_slice_owners_find(struct plait_slice_owners *o, uint64_t hash,
                            int *ranks)
{
    size_t first = first_of(o, hash);
    int n = 0;

    for (size_t i = first; i < o->total && o->all[i].hash == hash; i++)
        o->chosen[o->all[i].list] = true;
    for (int r = 0; r < o->ranks; r++)
        if (o->chosen[o->list_of[r]])
            ranks[n++] = r;
    for (size_t i = first; i < o->total && o->all[i].hash == hash; i++)
        o->chosen[o->all[i].list] = false;
    return n;
}
