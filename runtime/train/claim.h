/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CLAIM_H
#define PLAIT_RUNTIME_TRAIN_CLAIM_H

#include <stdint.h>

#include "topology/base/error.h"

/* One run at a time writes to a folder of checkpoints or to a metrics file. A
 * run claims it by a lock file, which has a lock of the kernel's, for processes
 * of one machine and for file systems that pass locks on, and a record of who
 * trains there, which is written anew every few seconds, for those that do
 * not. */

/* Of the claiming process; plait_claim_self() fills in all but `run`. */
struct plait_claimer {
    char host[256], boot[64];
    char job[64]; /* of Slurm, "": none */
    int restarts; /* of that job */
    int pid;
    double started;    /* of the process, in clock ticks since the boot */
    uint64_t run;      /* the same for all processes of a run */
    double patience_s; /* how long a record of another machine must stay as it
                          is before its run counts as dead */
    double beat_s;     /* between two writes of the record */
};
void plait_claim_self(struct plait_claimer *me);

/* Claim what the lock file `path` stands for; `what` is its name for the user.
 * NULL with EBUSY and text in err: another run has it. NULL without text: the
 * file cannot be written, so that nobody can claim it. What a run that has
 * ended without a word left there is taken over, which `taken` says ("": it was
 * free). */
struct plait_claim;
struct plait_claim *plait_claim_take(const char *path, const char *what,
                                     const struct plait_claimer *me,
                                     char taken[400], struct plait_error *err);
void plait_claim_release(struct plait_claim *claim);

#endif
