/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_PREFLIGHT_H
#define PLAIT_TOPOLOGY_START_PREFLIGHT_H

#include <stddef.h>

#include "topology/job/site.h"
#include "topology/layout/launch.h"

/* --preflight: before the command of a task starts, all tasks of a plan measure
 * their cores, their memory and the links of the rings that the plan makes of
 * them, and RANK 0 compares. */

/* The status of a task whose step failed its preflight. */
enum { PLAIT_PREFLIGHT_EXIT = 75 };

/* Besides the median: what the plan takes a link for. */
struct plait_preflight_bound {
    double link;  /* bytes a second */
    double least; /* the share of it below which a link is bad; 0: none is */
};

/* What the site says; NULL: nothing. */
struct plait_preflight_bound
plait_preflight_bound(const struct plait_site *site);

struct plait_preflight {
    const struct plait_launch *launch; /* this task's, with a rendezvous */
    const char *node;                  /* its name */
    const char *token; /* of the step, which other users do not know */
    /* Of RANK 0, before the other tasks hear of it: the one line. */
    void (*say)(void *arg, const char *text);
    void *arg;
    struct plait_preflight_bound bound; /* RANK 0's counts */
    /* Where nodes may be left out, of RANK 0 in place of that line: writes what
     * all tasks are to hear. `text` names the nodes below a bound, "": none;
     * below[NODE_RANK] is 1 for each. -1 ends the step, having said why. */
    int (*choose)(void *arg, const char *text, const int *below, char *heard,
                  size_t size);
    char *heard; /* PLAIT_MEETING_ANSWER bytes for it, NULL: of no use here */
};

/* In the process of a task, which is to become its command: -1, or the status
 * to end with in place of that, which one of the tasks has said why. RANK 0
 * ends last, with PLAIT_PREFLIGHT_EXIT, and the others with 0: a launcher that
 * kills all when one fails has then nobody to kill. */
int plait_preflight_run(const struct plait_preflight *preflight);

/* ---- for those who make it up, and its test ---- */

/* A ring has two neighbours, and there is a ring an axis. */
enum { PLAIT_PREFLIGHT_EDGES = 2 * PLAIT_NAXES };

struct plait_preflight_edge {
    int to;      /* rank on another node */
    double rate; /* bytes a second, at best */
};

struct plait_preflight_report {
    char node[64];
    int node_rank;
    double product; /* FLOP/s of processor time */
    double memory;  /* bytes of processor time, copied a second */
    double others;  /* processes that want a core of the task, each core, in the
                     * last round */
    char other[16]; /* what one of them is called, "": none */
    int nedges;
    struct plait_preflight_edge edge[PLAIT_PREFLIGHT_EDGES];
};

/* What the cores of this task do. Of rates the best is kept that is in the
 * report. */
void plait_preflight_measure_node(struct plait_preflight_report *report);

/* Take messages at *port until the process is killed; its id, or -1. Closes the
 * listener. */
int plait_preflight_serve(const char *token, int listener);
/* The rate to one who serves, better than *rate or left as it is. */
int plait_preflight_measure_link(const char *host, int port, const char *token,
                                 double *rate);

/* After a round: a node has as many others as in its calmest round so far. They
 * move between its cores, so that each of them may be free in some round though
 * the node is not in any: rounds are compared by node. `reports` are by rank,
 * `calm` by NODE_RANK, with least INFINITY before the first round. Pure. */
struct plait_preflight_calm {
    double now, least;
};
void plait_preflight_keep_calmest(struct plait_preflight_report *reports, int n,
                                  struct plait_preflight_calm *calm);

/* How many of the nodes are below the bounds, and which and why, as one line.
 * Pure. `reports` are by rank. below[NODE_RANK], n at most: 1 for those, else
 * 0; may be NULL. */
int plait_preflight_judge(const struct plait_preflight_report *reports, int n,
                          const struct plait_preflight_bound *bound, char *text,
                          size_t size, int *below);

#endif
