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

/* Of the claiming process; plait_claim_self() fills in all but `run`,
 * `waits` and `arg`. */
struct plait_claimer {
    char host[256], boot[64];
    char pids[64]; /* the namespace of process numbers; "": not known */
    char job[64];  /* of Slurm, "": none */
    int restarts;  /* of that job */
    int pid;
    int64_t user;
    double started;    /* of the process, in clock ticks since the boot */
    uint64_t run;      /* the same for all processes of a run */
    double patience_s; /* how long a record of another machine must stay as it
                          is before its run counts as dead */
    double denied_s;   /* the same while the lock is another's: a run whose
                          disk or process is slow has it still */
    double beat_s;     /* between two writes of the record */
    uint64_t dead;     /* a run that was found dead before, 0: none */
    /* Called several times a second while it is seen whether another run is
     * alive, with a line for the user the first time and NULL afterwards. May
     * be NULL. */
    void (*waits)(void *arg, const char *line);
    void *arg;
};
void plait_claim_self(struct plait_claimer *me);

/* Claim what the lock file `path` stands for; `what` is its name for the user.
 * NULL with EBUSY and text in err: another run has it. NULL without text: it
 * cannot be claimed; `said` says why where the user would not know: the lock
 * file is another user's, or another kind of file. What a run that has ended
 * without a word left there is taken over, which `said` says and me->dead
 * notes ("": it was free). */
#define PLAIT_CLAIM_SAID 900
struct plait_claim;
struct plait_claim *plait_claim_take(const char *path, const char *what,
                                     struct plait_claimer *me,
                                     char said[PLAIT_CLAIM_SAID],
                                     struct plait_error *err);
/* The kernel's number of the thread that writes the record; 0: there is none.
 * NULL-safe, as the release. */
int plait_claim_thread(struct plait_claim *claim);
void plait_claim_release(struct plait_claim *claim);
/* The descriptor of the lock file, whose lock holds as long as one is open. The
 * record is not written until plait_claim_unhold(). */
int plait_claim_hold(struct plait_claim *claim);
void plait_claim_unhold(struct plait_claim *claim);
/* In the next life of a process that held it (anew.h): writes the record of the
 * lock file `fd` again, at once and then as before, for the same run. Takes
 * `fd` over. NULL: it does not, as the file has lost its name, or memory is
 * short. */
struct plait_claim *plait_claim_go_on(int fd, const struct plait_claimer *me);
/* The file stays, with its record; only its descriptor is closed. */
void plait_claim_drop(struct plait_claim *claim);

#endif
