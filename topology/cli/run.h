/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_RUN_H
#define PLAIT_TOPOLOGY_CLI_RUN_H

#include "topology/job/site.h"
#include "topology/plan/plan.h"
#include "topology/start/options.h"
#include "topology/start/seats.h"

/* plait run: what the Slurm plugin does, without it. */

enum { RUN_HOST_SIZE = 256 };

/* Who started this process, and which of its tasks it is. */
struct run_place {
    int alone; /* nobody: it starts the tasks itself */
    int slurm;
    int named;       /* by the job that mpirun was started in */
    int rank, local; /* the launcher's own numbers */
    int first;       /* says what all tasks find wrong */
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

/* Read the launcher's variables; `np` as --np says, 0: not given. -1, with the
 * reason in err: wrong usage where errno is EINVAL. */
int run_place_find(struct run_place *place, int np, struct plait_error *err);
/* Ask Slurm for the tasks of all nodes, unless they are known. */
int run_place_ask(struct run_place *place, struct plait_error *err);
/* Forget the nodes with out[id] and number the others anew, but not this
 * one. */
void run_place_leave_out(struct run_place *place, const int *out);
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
    struct plait_plan *plan; /* nodes in the order of their ids; NULL: another
                                task has made it */
    char *code;              /* it, as plait_plan_encode() writes it */
    struct plait_plan_part part; /* what it says of this node */
    char master[RUN_HOST_SIZE];  /* RANK 0's address */
    char gpus[256];              /* all of this machine, where nobody chose */
    struct plait_seats seats;
    char token[RUN_TOKEN_SIZE]; /* of the preflight, "": none */
    int spares;                 /* nodes of Slurm's that are to be left out */
    int seated;       /* with --elastic in Slurm: the nodes before this id have
                         RANKs, the tasks of the others are spare */
    int over, status; /* this task has nothing to run, and ends */
    int only_here;    /* what is wrong, no other task finds */
    int said;         /* ... and another has said it */
};

/* Find or be told the plan, and find out what this node has. */
int run_prepare(struct run *run, struct plait_error *err);
void run_release(struct run *run);

/* Make the plan and find RANK 0's address: code and master. */
int run_plan(struct run *run, struct plait_error *err);
/* Its nodes from the order of their first tasks to that of their ids. */
int run_plan_order(const struct run_place *place, struct plait_plan *plan);
/* Read what `code` says of this node. */
int run_plan_adopt(struct run *run, struct plait_error *err);

/* In Slurm: the plan and the secret of the step, from the one task that asks
 * Slurm, as far as tasks know each other. */
int run_brief(struct run *run, struct plait_error *err);
/* Elsewhere: the secret, if there is one. */
int run_secret(struct run *run, struct plait_error *err);
/* Where PLAIT_SECRET comes from, or why there is none: of the first task. */
void run_secret_show(const struct run *run, const char *from);

/* In Slurm with --spares: the plan that the nodes are timed by, and once the
 * seats of it are filled, the other one, or that this task has none. */
int run_spares_plan(struct run *run, struct plait_error *err);
/* With --elastic: leave the spare nodes out of the plan that is to be made. */
int run_spares_keep(struct run *run, struct plait_error *err);
int run_spares(struct run *run, struct plait_error *err);

/* Time the nodes as task `local` of this one: what plait_preflight_run() says.
 * `heard` may be NULL. */
struct plait_preflight;
int run_preflight(struct run *run, int local,
                  const struct plait_preflight *how);
/* Bind this process as task `local`, and set its variables. */
int run_sit(struct run *run, int local, struct plait_error *err);
/* Become task `local` of this node, or with --elastic one of the spare ones
 * behind them; returns where that fails. */
int run_task(struct run *run, int local, struct plait_error *err);
/* Start all tasks on this machine, and wait for them; the exit status. */
int run_alone(struct run *run);

/* ---- what tasks tell each other: pure (run_text.c) ---- */

enum { RUN_BRIEF_SIZE = 45000 };

struct run_brief {
    char secret[PLAIT_SECRET_SIZE], token[RUN_TOKEN_SIZE]; /* "": none */
    char master[RUN_HOST_SIZE];
    const char *code;
};

/* What a node asks by. */
void run_request_print(const char *jobid, int id, char *text, size_t size);
/* What it is told: -1 where it is too long, or is not of this step. `code` is
 * inside of the text. */
int run_brief_print(const struct run_brief *brief, const char *jobid,
                    char text[RUN_BRIEF_SIZE]);
int run_brief_parse(const char *text, const char *jobid,
                    struct run_brief *brief);

/* After the preflight: the nodes that are left out, and the plan of the
 * others. */
struct run_chosen {
    int left_out, id; /* of node `id` as it was; as it is */
    char master[RUN_HOST_SIZE];
    const char *code;
};

/* out[nnodes] by id. -1: it is too long, or no such text. */
int run_chosen_print(const int *out, int nnodes, const char *master,
                     const char *code, char *text, size_t size);
int run_chosen_parse(const char *text, int id, struct run_chosen *chosen);

#endif
