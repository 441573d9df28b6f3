/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_COMM_TAGS_H
#define PLAIT_RUNTIME_COMM_TAGS_H

#include <stdbool.h>

/* The tags of point-to-point messages. A message is matched by communicator,
 * peer and tag, so tags need to differ only within one communicator. */
enum plait_tag {
    /* cp: ring attention */
    PLAIT_TAG_KEYS_VALUES = 0,
    PLAIT_TAG_KEYS_VALUES_GRAD = 1,
    /* dp: grad_sync naive */
    PLAIT_TAG_GRADIENT = 0,
    PLAIT_TAG_GRADIENT_SUM = 1,
    /* stage: a rank's piece of a matrix, and of the result */
    PLAIT_TAG_PIECE = 0,
    PLAIT_TAG_RESULT = 1,
    /* world: the copy that a rank keeps for its partner */
    PLAIT_TAG_COPY = 1,
    /* messages that plait-probe measures */
    PLAIT_TAG_PROBE = 0,
    /* any group: barriers over MPI where ranks share cores; the largest tag
     * that MPI guarantees */
    PLAIT_TAG_BARRIER = 32767,
};

/* ep: the tokens of one expert */
static inline int plait_tag_expert(int expert)
{
    return expert;
}

/* pp: the activations (or, backward, their gradients) of one micro-batch that
 * cross `boundary`, of which there are fewer than `stages` */
static inline int plait_tag_boundary(int stages, int boundary, bool backward,
                                     int microbatch)
{
    return (microbatch * stages + boundary) * 2 + backward;
}

#endif
