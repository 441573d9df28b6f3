/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_CARRY_H
#define PLAIT_RUNTIME_TRAIN_CARRY_H

#include "runtime/train/elastic.h"

/* What a process of an elastic run hands to its next life (anew.h): who it is
 * among the members, with the port that it listens at, what it knows of the
 * run, a signal that has asked for its end, and its copies in memory. */

/* Writes it to a file without a name, in memory. Each copy is freed as soon as
 * it is written, so that there is room for one more at the most: *e has none
 * afterwards, even on failure. Returns the descriptor; -1 with err. */
int plait_carry_write(struct plait_elastic *e, const struct plait_members *m,
                      struct plait_error *err);
/* Completes the file, as the last thing before the exec: e->held, and a signal
 * that has come by now. -1 with err. */
int plait_carry_finish(int fd, const struct plait_elastic *e,
                       struct plait_error *err);
/* Reads it in the next life, and closes the file. *e and *m are then as they
 * were; a signal that came in the life before comes again. -1 with err. */
int plait_carry_read(int fd, struct plait_elastic *e, struct plait_members **m,
                     struct plait_error *err);

#endif
