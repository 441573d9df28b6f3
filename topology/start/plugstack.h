/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_PLUGSTACK_H
#define PLAIT_TOPOLOGY_START_PLUGSTACK_H

#include "topology/base/error.h"
#include "topology/job/site.h"
#include "topology/start/options.h"

/* The arguments after spank_plait.so in plugstack.conf(5):
 *   cache=DIR|none     where each node caches its topology
 *   site=FILE          the site file
 *   discovery-seconds=N  how long discovery of a node may take
 *   on-hang=refuse|unpinned  what a step does where it takes longer
 *   preflight=yes|no   whether jobs that give flags do --preflight anyway
 *   NAME=VALUE         --NAME of jobs that give other flags but not this one
 *   force-NAME=VALUE   the same, and other values of --NAME are refused */
struct plait_plugstack {
    const char *cache; /* NULL: none */
    const char *site;  /* NULL: the default place, if it is there */
    int discovery_seconds;
    int unpinned; /* where discovery takes longer, tasks start unpinned */
    int preflight;
    const char *value[PLAIT_NOPTIONS]; /* NULL: no default */
    unsigned forced;                   /* bit per option */
    struct plait_error
        broken; /* a limit (site=, force-) that is wrong, or "" */
};

/* Keeps pointers into av. Each argument that is not understood is reported
 * to `complain` with `arg` and left out; the others still count. Where it was
 * to limit jobs, plait_plugstack_apply() fails. */
void plait_plugstack_parse(struct plait_plugstack *plugstack, int ac, char **av,
                           void (*complain)(void *arg, const char *text),
                           void *arg);

/* Fill in the defaults of a job that gave some flag. -1, with the reason, where
 * it gave a forced flag another value. */
int plait_plugstack_apply(const struct plait_plugstack *plugstack,
                          struct plait_options *options,
                          struct plait_error *err);

/* Read the site file with the caller's rights: *site is NULL where there is
 * none. -1, with the reason, where it is wrong, unreadable, or named and not
 * there. */
int plait_plugstack_site(const struct plait_plugstack *plugstack,
                         struct plait_site **site, struct plait_error *err);

#endif
