/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_CACHE_H
#define PLAIT_TOPOLOGY_NODE_CACHE_H

#include "topology/node/node.h"

/* What discovery found, kept for other processes until the next boot: the
 * file node.xml in a directory that only root can write to. It holds the
 * whole machine, whatever cgroup its writer was in. */

/* Read the cache. NULL where there is none, where it is damaged, or where it
 * was written by someone else, before this boot, or by another hwloc, driver or
 * Plait; err says which. */
struct plait_node *plait_node_load_cache(const char *dir,
                                         struct plait_error *err);

/* Can only root, or this process's user, write to the directory? 0, or -1 with
 * the reason; errno is ENOENT where it does not exist. */
int plait_node_check_cache_dir(const char *dir, struct plait_error *err);
/* Could the cache be read? 0, or -1 with the reason. Does not build the
 * node. */
int plait_node_check_cache(const char *dir, struct plait_error *err);

/* Make `dir` if only its last part is missing; -1, with the reason, where it
 * is not a directory that only root can write to. */
int plait_node_prepare_cache(const char *dir, struct plait_error *err);

/* Write the cache if it could not be read: 0 where it could, 1 where it was
 * written, -1 with the reason; errno is ETIMEDOUT where the discovery took more
 * than `seconds`. Never waits for another process that is writing it. A child
 * process does the discovery, so that none of its memory, threads or files stay
 * in this one. HWLOC_* is not obeyed. */
int plait_node_refresh_cache(const char *dir, int seconds,
                             struct plait_error *err);

/* The part of this machine that this process may use, found by a child process
 * in at most `seconds`, since a driver can hang the process that queries it.
 * NULL, with the reason in err. HWLOC_* is not obeyed. */
struct plait_node *plait_node_discover(int seconds, struct plait_error *err);

#endif
