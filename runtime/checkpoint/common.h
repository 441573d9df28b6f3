/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_CHECKPOINT_COMMON_H
#define PLAIT_CHECKPOINT_COMMON_H

#include "piece.h"
#include "runtime/comm/comm.h"
#include "runtime/optim/optim.h"

enum { PLAIT_PIECES_PER_SLICE = 3 };

/* The pieces that this rank owns, as they are named in a checkpoint, and
 * where each lies on the device. Both malloc'ed. Returns how many. */
int plait_pieces_create(const struct plait_optim *optim,
                        struct plait_piece **pieces, float ***data,
                        struct plait_error *err);

/* Collective: -1 on every rank if `ret` is on any, with the error of the
 * lowest of them in err. */
int plait_checkpoint_agree(struct plait_comm *world, int ret,
                           struct plait_error *err);

#endif
