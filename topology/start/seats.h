/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_SEATS_H
#define PLAIT_TOPOLOGY_START_SEATS_H

#include "topology/layout/launch.h"
#include "topology/node/node.h"
#include "topology/start/binding.h"

/* The tasks of one node: what they share, and how each is bound and gets its
 * rank. */

/* The longest environment variable that is read; no node needs more. */
enum { PLAIT_SEATS_TEXT_MOST = 65536 };

/* The environment of a task: this process's, or the one that Slurm prepares. */
struct plait_task_env {
    void *arg;
    /* 0, or -1, and "", where it is not set (errno ENOENT) or does not fit. */
    int (*get)(void *arg, const char *name, char *buf, size_t size);
    int (*set)(void *arg, const char *name, const char *value);
};

struct plait_seats {
    struct plait_launch launch; /* what all tasks of the node share */
    int first_rank;
    int rendezvous;                   /* set RANK, MASTER_ADDR & co. too */
    int keep_cpu, keep_gpu, keep_mem; /* the user's own binding stays */
    int nvlink, nccl, ucx, cxi;       /* requested by the site file */
    const char *variable;             /* name of the variable that lists GPUs */
    struct plait_node *node;          /* NULL: nothing is bound */
    struct plait_binding binding;
    struct plait_error note; /* what the user should know of it, or "" */
    char visible[PLAIT_SEATS_TEXT_MOST]; /* `variable` of the whole node */
};

/* The name of the variable that lists the visible GPUs of a vendor, and the
 * vendor that most of a node's GPUs are of ("nvidia" where it has none). */
const char *plait_seats_variable(const char *vendor);
const char *plait_seats_vendor(const struct plait_node *node);
/* What `variable` is where all GPUs of the node are visible. */
void plait_seats_list_gpus(const struct plait_node *node,
                           const struct plait_task_env *env, char *text,
                           size_t size);

/* The variables of NICs for programs that do not read PLAIT_NICS;
 * what the user set stays. */
int plait_seats_bind_nics(const struct plait_seats *seats,
                          const struct plait_task_env *env, int local);

/* Find out which GPUs of seats->node the step has, and check that they are
 * enough. */
int plait_seats_bind_gpus(struct plait_seats *seats,
                          const struct plait_task_env *env,
                          struct plait_error *err);

/* In the process of task `local`: bind it, and write its launch contract. */
int plait_seats_take(const struct plait_seats *seats, int local,
                     const struct plait_task_env *env, struct plait_error *err);

#endif
