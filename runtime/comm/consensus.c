/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/consensus.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/comm/backend.h"

/* The longest text that rank 0 tells the others. */
#define TEXT_MOST ((size_t)1 << 40)

/* More than any errno: a rank's priority and its errno are sent in one
 * number. */
#define ERRNO_ROOM 4096

/* 0: no failure. Otherwise ranks with text in err come before those without,
 * and among equals the lower rank. */
static int failure_priority(const struct plait_comm *world, int rc,
                            const struct plait_error *err)
{
    int size = plait_comm_size(world);

    if (rc >= 0)
        return 0;
    return (err->text[0] ? size : 0) + size - plait_comm_rank(world);
}

int plait_error_consensus_at(const char *place, struct plait_comm *world,
                             int rc, struct plait_error *err)
{
    int mine = failure_priority(world, rc, err), saved = errno;
    double highest =
        mine == 0 ? 0 : (double)mine * ERRNO_ROOM + saved % ERRNO_ROOM;
    double beyond = (2.0 * plait_comm_size(world) + 1) * ERRNO_ROOM;

    /* From here on nothing may fail on one rank alone, as malloc() may. */
    if (plait_comm_host_all_reduce_at(place, world, &highest, 1, PLAIT_WORST) <
        0) {
        if (rc == 0)
            plait_errorf(err, "rank %d: %s", plait_comm_rank(world),
                         plait_comm_error(world));
        return -1;
    }
    if (highest == 0) {
        errno = saved;
        return 0;
    }
    if (!(highest > 0 && highest < beyond))
        highest = EPROTO; /* no rank of this version says that */
    if ((int64_t)highest / ERRNO_ROOM != mine)
        err->text[0] = '\0';
    errno = (int)((int64_t)highest % ERRNO_ROOM);
    return -1;
}

void *plait_gather_values_at(const char *place, struct plait_comm *world,
                             const void *mine, size_t bytes,
                             struct plait_error *err)
{
    void *all = mine ? calloc((size_t)plait_comm_size(world), bytes) : NULL;

    if (plait_comm_ready(world, all) == 0 &&
        plait_comm_host_all_gather_at(place, world, mine, all, bytes) == 0)
        return all;
    err->text[0] = '\0';
    if (all && plait_comm_failed(world))
        plait_errorf(err, "%s", plait_comm_error(world));
    else
        errno = ENOMEM;
    if (!all)
        plait_errorf(err, "out of memory");
    free(all);
    return NULL;
}

static int broadcast_from_root(const char *place, struct plait_comm *world,
                               char **text, size_t *size,
                               struct plait_error *err)
{
    int rc = 0;

    if (plait_comm_host_broadcast_at(place, world, size, sizeof(*size), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    if (*size > TEXT_MOST)
        rc = plait_errorf(err, "a text of %zu bytes is too long", *size);
    else if (plait_comm_rank(world) > 0 && !(*text = malloc(*size + 1)))
        rc = plait_errorf(err, "out of memory");
    if (plait_error_consensus_at(place, world, rc, err) < 0)
        return -1;
    if (plait_comm_host_broadcast_at(place, world, *text, *size, 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    return 0;
}

int plait_broadcast_text_at(const char *place, struct plait_comm *world, int rc,
                            char **text, size_t *size, struct plait_error *err)
{
    char *mine = rc == 0 && plait_comm_rank(world) == 0 ? *text : NULL;

    if (mine)
        *text = NULL;
    if (plait_error_consensus_at(place, world, rc, err) == 0 &&
        broadcast_from_root(place, world, &mine, size, err) == 0) {
        *text = mine;
        return 0;
    }
    free(mine);
    return -1;
}
