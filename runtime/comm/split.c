/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "runtime/comm/backend.h"

/* Groups are split off, by all ranks or by none. */

/* A child inherits its parent's site and record. */
static void inherit(const struct plait_comm *parent, struct plait_comm *child,
                    int first, int domains)
{
    struct plait_record_group *group;

    child->world_rank = parent->world_rank;
    child->domains = domains;
    if (parent->sited)
        plait_comm_set_network(child, &parent->network, parent->domain);
    child->listeners.record = parent->listeners.record;
    if (child->size == 1)
        return;
    group = plait_record_add_group(child->listeners.record, child->name, first,
                                   child->size, child->rank);
    if (group)
        child->listeners.group = group;
}

int plait_comm_ready(struct plait_comm *comm, bool ready)
{
    struct plait_comm *host = plait_comm_of_hosts(comm);
    double failed = !ready;

    if (host->vtable->refuse) {
        if (!ready)
            host->vtable->refuse(host, "out of memory");
        return ready ? 0 : -1;
    }
    if (comm->failed || host->failed ||
        plait_comm_host_all_reduce(comm, &failed, 1, PLAIT_WORST) < 0)
        return -1;
    if (failed > 0)
        errno = ENOMEM;
    return failed > 0 ? -1 : 0;
}

/* This rank's part of a split: its group, NULL if it is in none. `alone`: it is
 * the only one of its color. */
static int split_off(struct plait_comm *parent, const struct plait_split *into,
                     const struct plait_group_site *site, bool alone,
                     struct plait_comm **child, struct plait_error *err)
{
    struct plait_comm *host = NULL;
    struct plait_split mine = *into;

    *child = NULL;
    if (parent->size > 1) {
        if (alone)
            mine.color = -1;
        if (parent->host &&
            plait_comm_split(parent->host, &mine, &host, err) < 0)
            return -1;
        if (parent->vtable->split(parent, &mine, site, child, err) < 0) {
            int saved = errno;

            plait_comm_destroy(host);
            errno = saved;
            return -1;
        }
        if (*child)
            (*child)->host = host;
    }
    if (alone) {
        *child = plait_self_create(parent->ops, parent->dev, into->name);
        if (!*child)
            return plait_errorf(err, "out of memory");
    }
    return 0;
}

/* The other groups must not go on without one that could not be made. Where a
 * backend was late on some ranks, all come here at about that time, and one of
 * them keeps the text. Of any other failure of the parent the others learn when
 * this rank ends. */
static int agree_on_group(struct plait_comm *parent,
                          const struct plait_split *into, int rc,
                          struct plait_error *err)
{
    bool late = rc < 0 && errno == ETIMEDOUT;

    if (parent->host && !parent->host->failed && (!parent->failed || late))
        return plait_comm_agree_over(parent->host, rc, err);
    if (plait_comm_ready(parent, rc == 0) == 0)
        return 0;
    if (rc == 0)
        plait_errorf(err, "%s: cannot split off %s: %s", parent->name,
                     into->name, plait_comm_error(parent));
    return -1;
}

int plait_comm_split(struct plait_comm *parent, const struct plait_split *into,
                     struct plait_comm **comm, struct plait_error *err)
{
    struct plait_comm *child;
    struct plait_group_site site = {.axis = into->axis};
    int first, rc;
    int n = plait_group_site_find(parent, into, &site, &first);

    if (n < 0)
        return plait_errorf(err, "%s: cannot split off %s: %s", parent->name,
                            into->name, plait_comm_error(parent));
    errno = 0; /* which says whether it was late */
    rc =
        split_off(parent, into, &site, into->color >= 0 && n == 1, &child, err);
    plait_group_site_clear(&site);
    if (agree_on_group(parent, into, rc, err) < 0) {
        plait_comm_destroy(child);
        return -1;
    }
    if (child)
        inherit(parent, child, first, site.domains);
    *comm = child;
    return 0;
}
