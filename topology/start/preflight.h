/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_START_PREFLIGHT_H
#define PLAIT_TOPOLOGY_START_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "topology/base/error.h"
#include "topology/job/site.h"
#include "topology/layout/launch.h"
#include "topology/node/health.h"

/* --preflight: before a task's command starts, all tasks of a plan look at
 * their GPU and NICs, and measure their cores, their memory and their links in
 * the plan's rings, and RANK 0 compares. */

/* The status of a task whose step failed its preflight. */
enum { PLAIT_PREFLIGHT_EXIT = 75 };

/* The bound on links besides the median: the rate that the plan assumes. */
struct plait_preflight_bound {
    double link;  /* bytes a second */
    double least; /* below this share of `link` it is bad; 0: no bound */
};

/* The site file's bound; NULL: none. */
struct plait_preflight_bound
plait_preflight_bound(const struct plait_site *site);

/* What `say` is given begins with it where that is no verdict. */
#define PLAIT_PREFLIGHT_WARNING "warning: preflight: "

struct plait_preflight {
    const struct plait_launch *launch; /* this task's, with a rendezvous; its
                                          gpu_busid and nics are looked at */
    const char *node;                  /* its name */
    const char *token; /* of the step, which other users do not know */
    /* Called by RANK 0 with the one line of its verdict, before the other tasks
     * learn of it. Before that, a line that begins PLAIT_PREFLIGHT_WARNING says
     * why the findings could not be handed on. */
    void (*say)(void *arg, const char *text);
    void *arg;
    struct plait_preflight_bound bound; /* that of RANK 0 counts */
    /* Where nodes may be left out, RANK 0 calls this instead of `say`: it
     * writes what all tasks are to receive. `text` names the nodes below a
     * bound, "": none; below[NODE_RANK] is 1 for each. -1 ends the step, after
     * it has printed why. */
    int (*choose)(void *arg, const char *text, const int *below, char *heard,
                  size_t size);
    char *heard; /* PLAIT_MEETING_ANSWER bytes for that; NULL: not wanted */
    const char *report; /* file that RANK 0 writes; "" or NULL: none */
    const char *hook;   /* program that RANK 0 starts if a node is below a
                           bound, an absolute path; "" or NULL: none */
    const char *probe;  /* plait-probe, which times the task's GPU; "" or NULL:
                           nothing does */
    char *const *env;   /* the command's environment, for it; NULL: this
                           process's */
};

/* Where plait-probe is: on `path`, which is written as PATH is, else in the
 * folder `beside`. Either may be NULL. "": nowhere. */
void plait_preflight_find_probe(const char *path, const char *beside,
                                char *probe, size_t size);

/* In the process of a task, before its command starts. -1: start it; else the
 * status to exit with instead, after one of the tasks has printed why. RANK 0
 * ends last, with PLAIT_PREFLIGHT_EXIT, and the others with 0, so that a
 * launcher that kills all tasks when one fails finds none to kill. */
int plait_preflight_run(const struct plait_preflight *preflight);

/* ---- for the files that implement it, and its test ---- */

/* A rank has two neighbours in a ring, and there is one ring an axis. */
enum { PLAIT_PREFLIGHT_EDGES = 2 * PLAIT_NAXES, PLAIT_PREFLIGHT_FAULTS = 176 };

struct plait_preflight_edge {
    int to;      /* rank on another node */
    double rate; /* bytes a second, the best measured */
};

/* What plait-probe says of a task's GPU. */
enum plait_preflight_gpu_state {
    PLAIT_PREFLIGHT_GPU_UNKNOWN,  /* none, or `note` says why */
    PLAIT_PREFLIGHT_GPU_TIMED,    /* `product` is */
    PLAIT_PREFLIGHT_GPU_UNUSABLE, /* CUDA refuses it, as `note` says */
    PLAIT_PREFLIGHT_GPU_STUCK,    /* it has not ended a product */
    PLAIT_PREFLIGHT_GPU_STATES
};
/* The rings of NCCL that are timed; their names are those of the axes. */
enum { PLAIT_PREFLIGHT_RINGS = 4, PLAIT_PREFLIGHT_NOTE = 128 };
extern const char *const plait_preflight_rings[PLAIT_PREFLIGHT_RINGS];

struct plait_preflight_gpu {
    enum plait_preflight_gpu_state state;
    char busid[16];                     /* "": not known */
    int type;                           /* its PCI device id; 0: not known */
    double product;                     /* FLOP/s in bf16 */
    double ring[PLAIT_PREFLIGHT_RINGS]; /* bytes a second over a link of the
                                           ring; 0: not timed */
    int wide; /* bit for each ring: it goes over several nodes */
    char note[PLAIT_PREFLIGHT_NOTE];
};

struct plait_preflight_report {
    char node[64];
    int node_rank;
    double product; /* FLOP/s of processor time */
    double memory;  /* bytes copied per second of processor time */
    double nic;    /* bytes a second, the port of its slowest NIC; 0: unknown */
    double others; /* other processes that want a core of the task, per core, in
                      the last round */
    char other[16]; /* the name of one of them, "": none */
    /* What is wrong with its GPU and NICs; "": nothing. */
    char faults[PLAIT_PREFLIGHT_FAULTS];
    struct plait_preflight_gpu gpu;
    int nedges;
    struct plait_preflight_edge edge[PLAIT_PREFLIGHT_EDGES];
};

/* Where a task takes messages. */
enum { PLAIT_PREFLIGHT_HOST = 64 };
struct plait_preflight_contact {
    char host[PLAIT_PREFLIGHT_HOST];
    int port, node_rank;
    int gpu; /* it has a GPU, and plait-probe to time it */
};

/* What tasks tell each other: pure. The readers return -1 for what no task
 * says: numbers out of range or not finite, names with other characters than
 * those of hosts. */
void plait_preflight_print_contact(const struct plait_preflight_contact *c,
                                   char *text, size_t size);
/* Returns how long it is. */
int plait_preflight_read_contact(const char *text, int nnodes,
                                 struct plait_preflight_contact *c);
void plait_preflight_print_report(const struct plait_preflight_report *r,
                                  char *text, size_t size);
/* `node_rank`: of the task that has sent it. */
int plait_preflight_read_report(const char *text, int world, int node_rank,
                                struct plait_preflight_report *r);
/* Replace characters that no line should have. A process may have any name. */
void plait_preflight_clean_name(char *name);

/* Measure this task's cores and memory. Rates only replace lower ones that are
 * in the report already. */
void plait_preflight_measure_node(struct plait_preflight_report *report);

/* Look at the GPU and the NICs of this task, before and after messages are sent
 * for the first time: report->nic and ->faults. */
void plait_preflight_look(const struct plait_launch *launch,
                          struct plait_health_counts *counts,
                          struct plait_preflight_report *report);
void plait_preflight_look_again(const struct plait_launch *launch,
                                const struct plait_health_counts *counts,
                                struct plait_preflight_report *report);

/* Whether there are a GPU and a plait-probe. */
int plait_preflight_has_probe(const struct plait_preflight *preflight);
/* How long plait-probe may take; a test changes it. */
extern int plait_preflight_probe_seconds;
/* Have preflight->probe, if there is one, time the task's GPU and NCCL's rings,
 * for which RANK 0's meets the others at `port`: report->gpu. `contacts` are by
 * rank; the rings only where all have a GPU. */
void plait_preflight_probe_gpu(const struct plait_preflight *preflight,
                               int port,
                               const struct plait_preflight_contact *contacts,
                               struct plait_preflight_report *report);
/* What it has printed, as far as it came in time. Pure. `late`: it had to be
 * ended, `begun` seconds after its line "begun". */
void plait_preflight_read_probe(char *text, int late, double begun,
                                struct plait_preflight_gpu *gpu);
/* What tasks tell each other of it: in `text`, "" where nothing is known. -1:
 * what no task says. */
void plait_preflight_print_gpu(const struct plait_preflight_gpu *gpu,
                               char *text, size_t size);
int plait_preflight_read_gpu(const char *text, struct plait_preflight_gpu *gpu);

/* A program in a process group of its own, which ends with this process. */
struct plait_preflight_program {
    const char *path;
    char *const *argv, *const *env;
    int in, out; /* its standard input and output; -1: /dev/null, as is its
                    standard error */
};
/* The id of the group and of its leader, which ends as the program does; -1
 * with errno. */
int plait_preflight_start(const struct plait_preflight_program *program);
/* Kill the group. Waits for all of it, a second at most: what a driver or a
 * file system holds longer is left behind. */
void plait_preflight_end(int group);

/* Start a process that answers messages at `listener` until it is killed, to
 * those that prove to know the token: see meeting_line.h. Returns its id, or
 * -1. Closes the listener. */
int plait_preflight_serve(const char *token, int listener);
/* Measure the rate to a task that serves; *rate changes only if that is
 * higher. -1: no such task is there, or it does not answer. */
int plait_preflight_measure_link(const char *host, int port, const char *token,
                                 double *rate);

/* After a round: count for a node as many other processes as in its calmest
 * round so far. They move between its cores, so that each core may be free in
 * some round though the node is not in any: rounds are compared by node.
 * `reports` are by rank, `calm` by NODE_RANK, with least INFINITY before the
 * first round. Pure. */
struct plait_preflight_calm {
    double now, least;
};
void plait_preflight_keep_calmest(struct plait_preflight_report *reports, int n,
                                  struct plait_preflight_calm *calm);

/* What RANK 0 makes of the reports of a node's tasks. Figures: NAN where
 * nothing was measured. */
struct plait_preflight_node {
    const char *name;
    double product, memory, nic; /* of its slowest rank */
    double sends, receives;      /* to and from its best neighbour */
    double others;
    const char *other;
    double gpu;                              /* product of its slowest GPU */
    double ring[PLAIT_PREFLIGHT_RINGS];      /* of its slowest rank */
    char faults[4 * PLAIT_PREFLIGHT_FAULTS]; /* of all its ranks */
    char notes[2 * PLAIT_PREFLIGHT_NOTE];    /* what is no fault */
    bool slow;      /* a figure is below a bound: may be a busy moment */
    char why[1024]; /* it is not fit, for these reasons; "": it is */
};

/* Of its GPUs: node->gpu, ->ring, ->notes, and what is added to ->faults. */
void plait_preflight_judge_gpus(const struct plait_preflight_report *reports,
                                int n, struct plait_preflight_node *nodes);
/* Add a text to such a list, once. */
void plait_preflight_add_words(char *list, size_t size, const char *words);
/* Sorts. Of an even number of values the upper median; NAN: there is none. */
double plait_preflight_median(double *values, int n);
/* The notes of all nodes in one line of the first one's. "": there are none. */
void plait_preflight_list_notes(const struct plait_preflight_node *nodes, int n,
                                char *text, size_t size);

/* `reports` are by rank, `nodes` by NODE_RANK, n at most. Returns how many
 * nodes there are. Pure. */
int plait_preflight_judge_nodes(const struct plait_preflight_report *reports,
                                int n,
                                const struct plait_preflight_bound *bound,
                                struct plait_preflight_node *nodes);
/* The nodes that are not fit, in one line that says why. Returns how many. */
int plait_preflight_list(const struct plait_preflight_node *nodes, int n,
                         char *text, size_t size);
/* Both. */
int plait_preflight_judge(const struct plait_preflight_report *reports, int n,
                          const struct plait_preflight_bound *bound, char *text,
                          size_t size);

/* The report: JSON that plait.1 describes. `job`: "job.step". */
void plait_preflight_print(const struct plait_preflight_node *nodes, int n,
                           const char *job, FILE *file);
/* How long preflight->hook may take, while all tasks wait; a test shortens it.
 */
extern int plait_preflight_hook_seconds;
/* Write it to preflight->report and give it to preflight->hook. -1 with what
 * went wrong in `err`; both are tried. */
int plait_preflight_hand_on(const struct plait_preflight *preflight,
                            const struct plait_preflight_node *nodes, int n,
                            struct plait_error *err);

#endif
