/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_AGREE_H
#define PLAIT_RUNTIME_COMM_AGREE_H

#include "runtime/comm/world.h"

/* Collective: whether all ranks have the same text, of lines "KEY=VALUE" whose
 * keys are the same everywhere. -1 with errno on all ranks if not: the lowest
 * rank that differs from rank 0 has in err both ranks, their hosts, the first
 * key that differs and both values. `text` NULL: this rank has no memory for
 * its own. */
int plait_agree_on_text(struct plait_comm *world, const char *text,
                        struct plait_error *err);

/* The same of the program's version and of what the launch says to all ranks
 * alike. */
int plait_agree_on_launch(const struct plait_world *world,
                          struct plait_error *err);

/* Collective: the greatest number that a rank has, of things of which each is
 * to send a list of equal length; every rank's must be `most_of_any` at most.
 * -1 with err, on all ranks, where one says more, since memory depends on it.
 */
int plait_greatest_count_at(const char *place, struct plait_comm *world,
                            size_t mine, size_t most_of_any, size_t *greatest,
                            struct plait_error *err);
#define plait_greatest_count(...) \
    plait_greatest_count_at(PLAIT_HERE, __VA_ARGS__)

#endif
