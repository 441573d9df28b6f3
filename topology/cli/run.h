/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_RUN_H
#define PLAIT_TOPOLOGY_CLI_RUN_H

#include "topology/job/site.h"
#include "topology/plan/plan.h"
#include "topology/start/options.h"
#include "topology/start/seats.h"

/* plait run: does without the Slurm plugin what the plugin does. */

enum { RUN_HOST_SIZE = 256 };

/* Which launcher started this process, and which of its tasks it is. */
struct run_place {
    int alone; /* none: this process starts the tasks itself */
    int slurm;
    int named; /* the job that mpirun was started in gives the nodes' names */
    int rank, local; /* the launcher's own numbers */
    int first;       /* this task prints errors that all tasks find */
    int id;          /* of its node */
    int nnodes;
    /* In Slurm: the names of this node and of node 0, and the tasks here. */
    char host[RUN_HOST_SIZE], head[RUN_HOST_SIZE];
    int here;
    /* In Slurm NULL until run_place_ask(). */
    char **names; /* [nnodes], in the order of their first tasks */
    int *tasks;   /* [nnodes] */
    int *ids;     /* [nnodes] */
    char jobid[64];
    unsigned job, step;
};

/* Read the launcher's variables. `np`: --np, 0: not given. -1, with the reason
 * in err; errno is EINVAL for wrong usage. */
int run_place_find(struct run_place *place, int np, struct plait_error *err);
/* Ask Slurm for the tasks of all nodes, unless they are known already. */
int run_place_ask(struct run_place *place, struct plait_error *err);
/* Remove the nodes with out[id] and renumber the others. place->id itself
 * stays. */
void run_place_leave_out(struct run_place *place, const int *out);
void run_place_clear(struct run_place *place);

/* The nodes of mpirun's daemons; *own: which of them is this one. On mpirun's
 * own node, only that one. NULL: the launcher is not Open MPI's, or a release
 * that does not list them. */
char **run_mpirun_nodes(int *n, int *own);
/* The same from Open MPI's text "head,n[2:1-4]@0(5)"; NULL: the text has
 * another form. */
char **run_mpirun_parse(const char *text, int *n);

/* 32 hexadecimal digits that other users do not know. */
enum { RUN_TOKEN_SIZE = 33 };
/* Ports at which the tasks of a step may meet for its plan. */
enum { RUN_PORTS = 32 };

struct run {
    struct plait_options options;
    int np, label, hand_over, elastic; /* --elastic sets options.spares */
    int open;                          /* --secret=none */
    int grace; /* with --np: seconds from a signal to SIGKILL */
    char **command;
    struct run_place place;
    struct plait_site *site; /* NULL: none */
    struct plait_plan *plan; /* nodes in the order of their ids; NULL: another
                                task has made it */
    char *code;              /* the plan from plait_plan_encode() */
    struct plait_plan_part part; /* this node's part of it */
    char master[RUN_HOST_SIZE];  /* RANK 0's address */
    int port;                    /* MASTER_PORT, 0: each task computes it */
    int own_port; /* a free port of this node, held by port_fd; 0: none */
    int port_fd;
    int *ports;      /* in the task that made the plan: own_port of each node */
    char gpus[4096]; /* all of this machine, where none were chosen */
    struct plait_seats seats;
    char token[RUN_TOKEN_SIZE]; /* the preflight's, "": none */
    int spares;                 /* nodes of Slurm's to leave out */
    int seated; /* with --elastic in Slurm: nodes below this id have RANKs, the
                   tasks of the others are spare */
    int over, status; /* this task has nothing to run, and ends */
    int only_here;    /* the error is on this task alone */
    int said;         /* ... and another task has printed it */
};

/* Make the plan or receive it, and find out what this node has. */
int run_prepare(struct run *run, struct plait_error *err);
void run_release(struct run *run);

/* Make the plan and find RANK 0's address: code and master. */
int run_plan(struct run *run, struct plait_error *err);
/* Reorder the plan's nodes from the order of their first tasks to that of their
 * ids. */
int run_plan_order(const struct run_place *place, struct plait_plan *plan);
/* Decode this node's part of `code`. */
int run_plan_adopt(struct run *run, struct plait_error *err);

/* The port of the node that has RANK 0, of those that the nodes have told:
 * `out` marks the nodes that were left out since then, NULL: none. */
int run_find_port(const struct run *run, const int *out);
/* In Slurm: get the plan and the secret of the step from the one task that asks
 * Slurm, as far as tasks can authenticate each other. */
int run_brief(struct run *run, struct plait_error *err);
/* Under other launchers: get the secret, if there is one. */
int run_secret(struct run *run, struct plait_error *err);
/* Where tasks of several nodes have no secret, for the reason `why`: refuse the
 * step, or with --secret=none make PLAIT_SECRET "none". */
int run_secret_lacks(struct run *run, const char *why, struct plait_error *err);
/* In the first task: print where PLAIT_SECRET comes from, or why there is
 * none. */
void run_secret_show(const struct run *run, const char *from);

/* In Slurm with --spares: make the plan by which the nodes are timed. Then
 * run_spares(), once its seats are filled: time them, and get the final plan,
 * or that this task has no part in it. */
int run_spares_plan(struct run *run, struct plait_error *err);
/* With --elastic: leave the spare nodes out of the plan that will be made. */
int run_spares_keep(struct run *run, struct plait_error *err);
int run_spares(struct run *run, struct plait_error *err);

/* Run the preflight as task `local` of this node; returns what
 * plait_preflight_run() does. `how` has its callbacks. */
struct plait_preflight;
int run_preflight(struct run *run, int local,
                  const struct plait_preflight *how);
/* Bind this process as task `local`, and set its variables. */
int run_sit(struct run *run, int local, struct plait_error *err);
/* Become task `local` of this node, or with --elastic one of the spare tasks
 * that follow; returns only where that fails. */
int run_task(struct run *run, int local, struct plait_error *err);
/* Start all tasks on this machine, and wait for them; the exit status. */
int run_alone(struct run *run);

/* ---- messages between tasks: pure (run_text.c) ---- */

enum { RUN_BRIEF_SIZE = 45000 };

struct run_brief {
    char secret[PLAIT_SECRET_SIZE], token[RUN_TOKEN_SIZE]; /* "": none */
    char master[RUN_HOST_SIZE];
    int port; /* 0: none is told */
    const char *code;
};

/* The request of a node: with a port that is free there, 0 for none, and a
 * token for this request alone, by which both sides prove who they are. */
struct run_request {
    int port;
    char token[RUN_TOKEN_SIZE];
};
void run_request_print(const struct run_request *request, const char *jobid,
                       int id, char *text, size_t size);
/* -1: it is not of node `id` of this step. */
int run_request_parse(const char *text, const char *jobid, int id,
                      struct run_request *request);
/* Where a step's tasks may meet, in the order in which they are tried. */
void run_list_ports(unsigned job, unsigned step, int ports[RUN_PORTS]);
/* The answer to it: -1 where it is too long, or is not of this step. `code`
 * points into the text. */
int run_brief_print(const struct run_brief *brief, const char *jobid,
                    char text[RUN_BRIEF_SIZE]);
int run_brief_parse(const char *text, const char *jobid,
                    struct run_brief *brief);

/* The message after the preflight: the nodes that are left out, and the plan of
 * the others. */
struct run_chosen {
    int left_out, id; /* of this node: whether it is left out, and its new id */
    int port;
    char master[RUN_HOST_SIZE];
    const char *code;
};

/* out[nnodes] by id. -1: the text is too long, or has another form. `id` is the
 * node's old one. */
int run_chosen_print(const int *out, int nnodes, const char *master, int port,
                     const char *code, char *text, size_t size);
int run_chosen_parse(const char *text, int id, struct run_chosen *chosen);

#endif
