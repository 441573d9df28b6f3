/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_RUN_H
#define PLAIT_TOPOLOGY_CLI_RUN_H

#include "topology/job/site.h"
#include "topology/plan/plan.h"
#include "topology/start/options.h"
#include "topology/start/seats.h"

/* plait run: what the Slurm plugin does, without it. */

/* Who started this process, and which of its tasks it is. */
struct run_place {
    int alone; /* nobody: it starts the tasks itself */
    int slurm;
    int named;       /* by the job that mpirun was started in */
    int rank, local; /* the launcher's own numbers */
    int id;          /* of its node */
    int nnodes;
    char **names; /* [nnodes], in the order of their first tasks */
    int *tasks;   /* [nnodes] */
    int *ids;     /* [nnodes] */
    char jobid[64];
    unsigned job, step;
};

/* Read the launcher's variables; `np` as --np says, 0: not given. -1, with the
 * reason in err: wrong usage where errno is EINVAL. */
int run_place_find(struct run_place *place, int np, struct plait_error *err);
void run_place_clear(struct run_place *place);

/* The nodes of mpirun's daemons, and which of them is this one, where it is
 * mpirun's own that one alone; NULL: it is not Open MPI's, or of a release that
 * does not tell. */
char **run_mpirun_nodes(int *n, int *own);
/* The same of its text "head,n[2:1-4]@0(5)"; NULL: it is another text. */
char **run_mpirun_parse(const char *text, int *n);

/* 32 digits that other users do not know. */
enum { RUN_TOKEN_SIZE = 33 };

struct run {
    struct plait_options options;
    int np, label, hand_over, elastic; /* options.spares: of --elastic */
    int grace; /* of --np: seconds from a signal to SIGKILL */
    char **command;
    struct run_place place;
    struct plait_site *site; /* NULL: none */
    struct plait_plan *plan; /* nodes in the order of their ids */
    char gpus[256];          /* all of this machine, where nobody chose some */
    struct plait_seats seats;
    char token[RUN_TOKEN_SIZE]; /* of the preflight, "": none */
    int only_here;              /* what is wrong, no other task finds */
    int said;                   /* ... and another has said it */
};

/* Make the plan, and find out what this node has. */
int run_prepare(struct run *run, struct plait_error *err);
void run_release(struct run *run);
/* Find the secret of the step, or agree on one with its other tasks. */
int run_secret(struct run *run, struct plait_error *err);
/* What RANK 0 hands over: 0, or -1 where it is not of this step. Pure. */
int run_secret_parse(const char *text, const char *jobid, char *secret,
                     char *token);
/* Become task `local` of this node, or with --elastic one of the spare ones
 * behind them; returns where that fails. */
int run_task(struct run *run, int local, struct plait_error *err);
/* Start all tasks on this machine, and wait for them; the exit status. */
int run_alone(struct run *run);

#endif
