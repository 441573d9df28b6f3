/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPIES_H
#define PLAIT_RUNTIME_CHECKPOINT_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

/* Images of ranks' state (copy_image.h) in this process's memory: its own, and
 * that of the rank whose partner it is. They outlive the world that made them:
 * after a loss, the processes that are left look for a step of which every
 * image still exists. */

struct plait_copy {
    struct plait_copy *next;
    char *image;
    size_t size;
    bool whole; /* the image is complete, and finite */
};

struct plait_copies {
    struct plait_copy *first;
    /* What plait_copies_agree() has found: the step, -1: none; the world that
     * made the copies, and how many images a step has. Then all other copies
     * are gone. */
    int64_t step;
    uint64_t epoch;
    int ranks;
};

struct plait_copies *plait_copies_create(void);
void plait_copies_destroy(struct plait_copies *c);

/* Takes ownership of `image`, even on failure (NULL). */
struct plait_copy *plait_copies_add(struct plait_copies *c, char *image,
                                    size_t size);
/* Frees the copies of other worlds than `epoch`. */
void plait_copies_drop_others(struct plait_copies *c, uint64_t epoch);
/* The complete image of rank `origin` in the step that was agreed on; NULL: not
 * here. */
const struct plait_copy *plait_copies_find(const struct plait_copies *c,
                                           int origin);

/* Collective over all processes that are left, the first `seats` of which have
 * seats: finds the newest step of which no image is lost. Images that only
 * processes without a seat hold are sent to one that has a seat. */
int plait_copies_agree(struct plait_copies *c, struct plait_comm *all,
                       int seats, struct plait_error *err);

#endif
