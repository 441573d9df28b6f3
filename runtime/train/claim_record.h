/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CLAIM_RECORD_H
#define PLAIT_RUNTIME_TRAIN_CLAIM_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/train/claim.h"

/* What a lock file says. */
struct plait_claim_record {
    struct plait_claimer by;
    double since; /* Unix time */
    int64_t beat; /* how often it was written */
};

/* Opens a regular file that has no other name; -1 with errno. In a folder that
 * others may write to, a link must not lead to another file of this user's, and
 * a pipe must not keep this process waiting. */
int plait_claim_record_open(const char *path, int flags);

enum plait_claim_content {
    PLAIT_CLAIM_UNREAD, /* it cannot be opened now */
    PLAIT_CLAIM_EMPTY,
    PLAIT_CLAIM_OTHER, /* no record, or a part of one */
    PLAIT_CLAIM_RECORD
};
/* The file is opened anew, as a network file system shows what others have
 * written only then. */
enum plait_claim_content plait_claim_record_read(const char *path,
                                                 struct plait_claim_record *r);
/* Counts a beat. -1: it cannot be written. */
int plait_claim_record_write(int fd, struct plait_claim_record *r);
/* "process 12 on node7, job 77.0, since ..." */
void plait_claim_record_describe(const struct plait_claim_record *r, char *text,
                                 size_t size);
/* Whether this machine shows the process, which has not ended. */
bool plait_claim_record_runs(const struct plait_claim_record *r);
/* Whether it is of an earlier start of `me`'s job: a job that Slurm has started
 * again has ended before. */
bool plait_claim_record_restarted(const struct plait_claim_record *r,
                                  const struct plait_claimer *me);

#endif
