/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_REMOTE_H
#define PLAIT_SPANK_PLUGIN_REMOTE_H

#include <stddef.h>

#include <slurm/spank.h>

#include "spank_plugin/binding.h"
#include "spank_plugin/options.h"
#include "topology/layout/launch.h"

/* Private to remote.c, which fills this once for all tasks of a node, and to
 * task.c, which reads it in each forked task. */

/* The longest environment variable that is read: more than any node's. */
enum { PLAIT_REMOTE_TEXT_MOST = 65536 };

struct plait_remote {
    struct plait_options options;
    struct plait_launch launch; /* what all tasks of the node share */
    int first_rank;
    int keep_cpu, keep_gpu, keep_mem; /* the user's own binding stays */
    int reserved_port;       /* MASTER_PORT is the one that Slurm reserved */
    int user_port;           /* ... or the user's own */
    int nvlink, nccl, ucx;   /* what the site file asks for */
    int port_fd;             /* holds MASTER_PORT; -1: not held here */
    const char *variable;    /* in which Slurm lists the GPUs */
    struct plait_node *node; /* NULL: nothing is bound */
    struct plait_binding binding;
    struct plait_error note; /* what this node does without, or "" */
    char visible[PLAIT_REMOTE_TEXT_MOST]; /* `variable` of the whole node */
};

/* A variable of the step's environment; -1, and "", where it is not set or
 * does not fit. */
int plait_remote_get_env(spank_t spank, const char *name, char *buf,
                         size_t size);

#endif
