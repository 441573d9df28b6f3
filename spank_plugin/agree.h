/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_SPANK_PLUGIN_AGREE_H
#define PLAIT_SPANK_PLUGIN_AGREE_H

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "topology/base/error.h"

/* The nodes of a planned step agree before any of its tasks starts: each
 * tells srun whether it can start its tasks, and srun tells all of them to go
 * on, or says in one line what is wrong and stops them. */

/* srun */
struct plait_agreement;

/* Listen in a thread of its own, and put where into the environment.
 * `ports` as in plait_meeting_create(); the names are copied. */
struct plait_agreement *plait_agreement_start(const slurm_step_id_t *id,
                                              const char *const *nodes,
                                              int nnodes,
                                              const uint16_t ports[2],
                                              struct plait_error *err);
/* Ends the thread, and with it the waiting of the nodes. NULL-safe. */
void plait_agreement_end(struct plait_agreement *agreement);
/* srun has said what is wrong: what it and its tasks would add to that goes
 * nowhere. */
void plait_agreement_be_silent(void);

/* slurmstepd */
enum plait_verdict {
    PLAIT_GO,
    PLAIT_STOP,  /* srun has said why */
    PLAIT_ALONE, /* srun does not listen: nobody has said anything */
    PLAIT_CUT    /* srun cannot be reached: the reason is in err */
};

/* Does srun of this step listen? */
int plait_agreement_exists(spank_t spank);
/* Tell srun what hinders this node (`why`; NULL: nothing) or what it lacks and
 * can do without (`note`; NULL: nothing), and wait for all others. *port is
 * the free port of RANK 0's node, 0 on the others; it becomes that of the
 * step. */
enum plait_verdict plait_agreement_join(spank_t spank, const char *why,
                                        const char *note, int *port,
                                        struct plait_error *err);

#endif
