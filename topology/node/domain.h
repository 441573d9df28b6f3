/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_DOMAIN_H
#define PLAIT_TOPOLOGY_NODE_DOMAIN_H

#include <stdbool.h>

/* The NVLink domain that joins this machine's GPUs with those of other nodes
 * (GB200 and GB300 racks), as NVML has it. */
enum plait_domain_state {
    PLAIT_DOMAIN_NONE,     /* no such GPUs, or no NVML that knows of domains */
    PLAIT_DOMAIN_STARTING, /* the GPUs are not registered yet */
    PLAIT_DOMAIN_FAILED,   /* ... or have failed to */
    PLAIT_DOMAIN_MIXED,    /* they are in different domains */
    PLAIT_DOMAIN_READY
};

struct plait_domain {
    enum plait_domain_state state;
    /* READY: "CLUSTER.CLIQUE", CLUSTER being 32 hexadecimal digits: equal on
     * two nodes whose GPUs NVLink joins; else "". */
    char name[64];
    /* Whether an IMEX channel is there for this process, which programs need to
     * use each other's memory over it. */
    bool imex;
};

/* Ask NVML; always fills in `domain`. */
void plait_domain_find(struct plait_domain *domain);

/* The same in a child process, as a driver may not answer. -1 with ETIMEDOUT:
 * it has not in so many seconds; or with the errno of what has failed. */
int plait_domain_ask(int seconds, struct plait_domain *domain);

#endif
