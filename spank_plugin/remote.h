/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_REMOTE_H
#define PLAIT_SPANK_PLUGIN_REMOTE_H

#include <stddef.h>
#include <sys/types.h>

#include <slurm/spank.h>

#include "topology/start/options.h"
#include "topology/start/preflight.h"
#include "topology/start/seats.h"

/* Private to remote.c and agree_node.c. */

/* The longest environment variable that is read: more than any node's. */
enum { PLAIT_REMOTE_TEXT_MOST = PLAIT_SEATS_TEXT_MOST };

struct plait_remote {
    struct plait_options options;
    struct plait_seats seats;
    int reserved_port;  /* MASTER_PORT is the one that Slurm reserved */
    int user_port;      /* ... or the user's own */
    char preflight[65]; /* its token, "": none */
    struct plait_preflight_bound bound;
    char report[4096]; /* the preflight's, "": none */
    char hook[1024];   /* the site's program for what it finds, "": none */
    int port_fd;       /* holds MASTER_PORT; -1: not held here */
    pid_t port_pid;    /* the process whose descriptor that is */
    struct plait_error note; /* what this node lacks, or "" */
};

/* A variable of the step's environment; -1, and "", where it is not set or
 * does not fit. */
int plait_remote_get_env(spank_t spank, const char *name, char *buf,
                         size_t size);

#endif
