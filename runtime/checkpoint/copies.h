/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPIES_H
#define PLAIT_RUNTIME_CHECKPOINT_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* Images of ranks' state (copy_image.h) in this process's memory: its own, and
 * that of a rank which it is the partner of. They outlive the world that made
 * them: when ranks have died, the others look for a step of which each image is
 * left somewhere. */

struct plait_copy {
    struct plait_copy *next;
    char *image;
    size_t size;
    bool whole; /* it is complete, and finite */
};

struct plait_copies {
    struct plait_copy *first;
    /* What was agreed on: the step, -1: none; the world that made it, and how
     * many images it has. Only these are left then. */
    int64_t step;
    uint64_t epoch;
    int ranks;
};

struct plait_copies *plait_copies_create(void);
void plait_copies_destroy(struct plait_copies *c);

/* Takes `image`, also on failure: NULL. */
struct plait_copy *plait_copies_add(struct plait_copies *c, char *image,
                                    size_t size);
/* Away with those of other worlds than `epoch`. */
void plait_copies_drop_others(struct plait_copies *c, uint64_t epoch);
/* The whole image of that rank in what was agreed on; NULL: not here. */
const struct plait_copy *plait_copies_find(const struct plait_copies *c,
                                           int origin);

/* Collective over all that are left, of whom the first have seats: the newest
 * step of which no image is lost. What only those without a seat have is given
 * to one that has. */
int plait_copies_agree(struct plait_copies *c, struct plait_comm *all,
                       int seats, struct plait_error *err);

#endif
