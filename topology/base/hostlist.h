/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_HOSTLIST_H
#define PLAIT_TOPOLOGY_BASE_HOSTLIST_H

#include <stddef.h>

#include "topology/base/error.h"

/* Call add(arg, name) for every name of a Slurm host list such as
 * "n[1-4,07],gpu[0-1]-ib[0-3]": ranges keep their leading zeros, several
 * brackets multiply, the first varying slowest. Stops with -1 as soon as
 * add() does, at more than 1,048,576 names, and where the text is no host
 * list; the last two are described in err. */
int plait_hostlist_each(const char *text, size_t length,
                        int (*add)(void *arg, const char *name), void *arg,
                        struct plait_error *err);

/* The names as an array, or NULL; free with plait_hostlist_destroy. */
char **plait_hostlist_create(const char *text, int *count,
                             struct plait_error *err);
void plait_hostlist_destroy(char **names, int count);

/* The other way round: "n[1-3,7],login", malloc'ed; NULL with ENOMEM. The names
 * may come in any order. */
char *plait_hostlist_fold(const char *const *names, int n);

/* The number of tasks on node `node` (from 0) in Slurm's notation for all
 * nodes, such as "2(x3),1"; -1 where the text has none for it. */
int plait_hostlist_tasks(const char *text, int node);

#endif
