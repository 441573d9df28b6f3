/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "topology/node/node.h"

/* Which cores a task gets. Every task of a node computes the whole division for
 * itself, so the result must not depend on which task computes it. */

/* The allowed PUs near a task's GPU, or an empty set where that is unknown
 * or nothing there is allowed. */
static void near_cpus(const struct plait_node *node,
                      hwloc_const_cpuset_t allowed, int gpu,
                      hwloc_cpuset_t cpus)
{
    hwloc_bitmap_zero(cpus);
    if (gpu >= 0 && gpu < node->ngpus && node->gpus[gpu].near)
        hwloc_bitmap_and(cpus, allowed, node->gpus[gpu].near);
}

/* Part `part` of `nparts` of the PUs in `from`, as they are numbered. */
static void share_pus(hwloc_const_cpuset_t from, int part, int nparts,
                      hwloc_cpuset_t cpus)
{
    int n = hwloc_bitmap_weight(from), pu = -1;
    int first = (int)((long)part * n / nparts);
    int last = (int)((long)(part + 1) * n / nparts);

    if (last == first)
        last = first + 1; /* more tasks than PUs: neighbours share one */
    for (int i = 0; i < last; i++) {
        pu = hwloc_bitmap_next(from, pu);
        if (i >= first)
            hwloc_bitmap_set(cpus, (unsigned)pu);
    }
}

static bool is_core_of(hwloc_obj_t core, hwloc_const_cpuset_t from)
{
    return hwloc_bitmap_intersects(core->cpuset, from);
}

/* Part `part` of `nparts` of the cores in `from`, in topology order, so that
 * each part is as close together as the numbers allow. */
static void share(hwloc_topology_t topology, hwloc_const_cpuset_t from,
                  int part, int nparts, hwloc_cpuset_t cpus)
{
    hwloc_obj_t core = NULL;
    int ncores = 0, i = 0, first, last;

    hwloc_bitmap_zero(cpus);
    while (topology &&
           (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
        ncores += is_core_of(core, from);
    if (ncores < nparts) {
        share_pus(from, part, nparts, cpus);
        return;
    }
    first = (int)((long)part * ncores / nparts);
    last = (int)((long)(part + 1) * ncores / nparts);
    while (
        (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core))) {
        if (!is_core_of(core, from))
            continue;
        if (i >= first && i < last)
            hwloc_bitmap_or(cpus, cpus, core->cpuset);
        i++;
    }
    hwloc_bitmap_and(cpus, cpus, from);
}

/* What a node's tasks divide among them, and room for two sets. */
struct division {
    const struct plait_node *node;
    hwloc_const_cpuset_t allowed;
    const int *seats; /* the tasks' GPUs; NULL: they have none */
    int ntasks;
    int local; /* whose part is wanted */
    hwloc_cpuset_t near, taken;
};

static bool is_inside(hwloc_const_cpuset_t set, hwloc_const_cpuset_t of)
{
    return hwloc_bitmap_isincluded(set, of) && !hwloc_bitmap_isequal(set, of);
}

/* Divide the PUs near to this task's GPU among the tasks whose GPUs are near to
 * the same. A GPU may be near to a whole NUMA node and others to a cache in it:
 * these keep theirs, as far as anything is left for it. Returns 0 if no allowed
 * PU is near to it. */
static int bind_near(const struct division *d, hwloc_cpuset_t cpus)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc(), rest = hwloc_bitmap_alloc();
    int part = 0, nparts = 0, found = -1;

    if (!mine || !rest)
        goto error;
    near_cpus(d->node, d->allowed, d->seats[d->local], mine);
    hwloc_bitmap_copy(rest, mine);
    hwloc_bitmap_zero(d->taken);
    for (int i = 0; i < d->ntasks; i++) {
        near_cpus(d->node, d->allowed, d->seats[i], d->near);
        hwloc_bitmap_or(d->taken, d->taken, d->near);
        if (is_inside(d->near, mine))
            hwloc_bitmap_andnot(rest, rest, d->near);
        if (hwloc_bitmap_isequal(d->near, mine)) {
            part += i < d->local;
            nparts++;
        }
    }
    found = !hwloc_bitmap_iszero(mine);
    if (found)
        share(d->node->topology, hwloc_bitmap_iszero(rest) ? mine : rest, part,
              nparts, cpus);
error:
    hwloc_bitmap_free(mine);
    hwloc_bitmap_free(rest);
    return found;
}

/* The tasks without a GPU, or with no allowed PU near to it, divide the PUs
 * that the other tasks left, or all if none are left. */
static void bind_rest(const struct division *d, hwloc_cpuset_t cpus)
{
    int part = 0, nparts = 0;

    for (int i = 0; i < d->ntasks; i++) {
        near_cpus(d->node, d->allowed, d->seats ? d->seats[i] : -1, d->near);
        if (hwloc_bitmap_iszero(d->near)) {
            part += i < d->local;
            nparts++;
        }
    }
    hwloc_bitmap_andnot(d->near, d->allowed, d->taken);
    share(d->node->topology,
          hwloc_bitmap_iszero(d->near) ? d->allowed : d->near, part, nparts,
          cpus);
}

int plait_node_bind(const struct plait_node *node, hwloc_const_cpuset_t allowed,
                    const int *seats, int ntasks, int local,
                    hwloc_cpuset_t cpus)
{
    struct division d = {.node = node,
                         .allowed = allowed,
                         .seats = seats,
                         .ntasks = ntasks,
                         .local = local};
    int placed = 0;

    if (ntasks < 1 || local < 0 || local >= ntasks ||
        hwloc_bitmap_weight(allowed) < 1) {
        errno = EINVAL;
        return -1;
    }
    d.near = hwloc_bitmap_alloc();
    d.taken = hwloc_bitmap_alloc();
    if (!d.near || !d.taken)
        goto error;
    if (seats)
        placed = bind_near(&d, cpus);
    if (placed < 0)
        goto error;
    if (!placed)
        bind_rest(&d, cpus);
    hwloc_bitmap_free(d.near);
    hwloc_bitmap_free(d.taken);
    return 0;
error:
    hwloc_bitmap_free(d.near);
    hwloc_bitmap_free(d.taken);
    errno = ENOMEM;
    return -1;
}
