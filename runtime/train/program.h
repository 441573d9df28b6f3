/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_PROGRAM_H
#define PLAIT_RUNTIME_TRAIN_PROGRAM_H

#include <stdbool.h>

#include "runtime/train/session.h"

/* What the programs that run a model have in common: from the command line to
 * the exit status. */
struct plait_program {
    const char *name; /* in front of errors */
    const struct plait_train_args *args;
    const void *own; /* the program's own part of the command line */
    bool elastic;    /* it can go on without ranks that are gone (elastic.h) */
    /* Called once the ranks have met; returns as plait_run_train() does. */
    int (*run)(struct plait_session *s, const struct plait_program *program,
               struct plait_error *err);
};

/* All that follows the parsing of the command line. parsed: what the parser
 * returned; 0: run the program, collectively; 1: nothing is left to do; -1:
 * wrong usage, which err describes, and which one rank reports, because all see
 * the same command line; PLAIT_RUN_BROKEN: this rank cannot even meet the
 * others, and says why. Returns the exit status, which is not 0 where standard
 * output could not be written: a full disk must not pass for success. */
int plait_program_main(const struct plait_program *program, int parsed,
                       const struct plait_error *err);

#endif
