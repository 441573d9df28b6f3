/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_AGREE_H
#define PLAIT_SPANK_PLUGIN_AGREE_H

#include <stdbool.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "topology/base/error.h"
#include "topology/start/meeting.h"

/* The nodes of a planned step agree before any of its tasks starts: each
 * tells srun whether it can start its tasks, and srun tells all of them to go
 * on, or says in one line what is wrong and stops them. */

/* While the tasks wait, srun sends them a sign of life every PLAIT_AGREE_SIGN
 * seconds. A node that gets none for PLAIT_AGREE_QUIET seconds no longer waits:
 * srun is stopped or cut off, and Slurm drains a node where a cancelled step is
 * still there after UnkillableStepTimeout, 60 seconds by default. */
enum { PLAIT_AGREE_SIGN = 5, PLAIT_AGREE_QUIET = 25 };

/* srun */
struct plait_agreement;

/* Listen for the nodes in a new thread, and put the port and a token into the
 * environment (PLAIT_ENV_AGREE). `ports` as in plait_meeting_create(); the
 * names are copied. NULL, with the reason in err. */
struct plait_agreement *plait_agreement_start(const slurm_step_id_t *id,
                                              const char *const *nodes,
                                              int nnodes,
                                              const uint16_t ports[2],
                                              struct plait_error *err);
/* Ends the thread, and with it the waiting of the nodes. NULL-safe. */
void plait_agreement_end(struct plait_agreement *agreement);
/* Send stderr to /dev/null: srun has said what is wrong, and what it and its
 * tasks would add is noise. */
void plait_agreement_be_silent(void);

/* srun refuses a step whose nodes it has launched all the same: end those that
 * lack the plugin, and srun with a status other than 0. */
struct plait_agreement *plait_agreement_refuse(const slurm_step_id_t *id);

/* slurmstepd, and the tasks that it forks */
enum plait_agreement_answer {
    PLAIT_GO,
    PLAIT_STOP,  /* srun has said why, or will once it runs again */
    PLAIT_ALONE, /* srun does not listen: the user has been told nothing */
    PLAIT_CUT,   /* srun cannot be reached: the reason is in err */
    PLAIT_WAIT   /* srun has not answered yet */
};

/* A node's connection to srun. slurmstepd makes it and its tasks wait at it: a
 * signal to the step reaches them, and not slurmstepd, which would wait on. The
 * first task hears the answer, and tells it to the others through a pipe. */
struct plait_agreement_call {
    struct plait_meeting_place place;
    enum plait_agreement_answer verdict;
    int fd, ends[2], port;
    pid_t pid; /* slurmstepd's */
    struct plait_error why;
};

/* As slurmstepd, when it starts. */
void plait_agreement_init(struct plait_agreement_call *call);
/* Does the srun of this step listen? */
bool plait_agreement_exists(spank_t spank);
/* Before the tasks are forked: tell srun why this node cannot start its tasks
 * (`why`; NULL: it can), or what it lacks and can do without (`note`; NULL:
 * nothing). `port`: the free port that RANK 0's node has found, 0 on the other
 * nodes. */
void plait_agreement_call(struct plait_agreement_call *call, spank_t spank,
                          const char *why, const char *note, int port);
/* Once they are forked. */
void plait_agreement_close(struct plait_agreement_call *call);
/* In a task: wait for the answer, which srun gives once all nodes have
 * reported. *port becomes the step's MASTER_PORT. */
enum plait_agreement_answer
plait_agreement_hear(struct plait_agreement_call *call, int local, int tasks,
                     int *port, struct plait_error *err);

#endif
