/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_RULE_H
#define PLAIT_RUNTIME_OPTIM_RULE_H

#include "kernels/kernels.h"
#include "runtime/optim/direction.h"
#include "topology/job/optimizers.h"

/* How an optimizer steps: the update of each element (kernels.h) and, if that
 * depends on norms of whole tensors, the factor computed from them. The states
 * per weight are listed in topology/job/optimizers.h. */

/* Norms of one whole tensor, however it is sharded. */
struct plait_tensor_norms {
    double weight; /* |w| */
    double other;  /* |g|, with g multiplied by the step's grad_scale; LAMB:
                    * |u|; DIRECTION: norm of the direction */
    double elements;
    int64_t step; /* from 1 */
};

struct plait_optim_rule {
    enum plait_update_rule update;
    /* The factor f of an update, from the norms, this step's rate, and whether
     * weight decay applies to the tensor. *state, initially 0, is kept from
     * step to step. The same input gives the same bits on all ranks. NULL: f is
     * 1 and norms are not needed. */
    double (*factor)(const struct plait_optim_config *config, double lr,
                     bool decay, const struct plait_tensor_norms *norms,
                     float *state);
    /* The name of *state in a checkpoint: optim.NAME.TENSOR, one number; NULL:
     * there is no such state. */
    const char *tensor_state;
    /* Makes the direction that replaces the gradient; NULL: none. */
    const struct plait_direction *direction;
};

const struct plait_optim_rule *plait_optim_rule(enum plait_optim_kind kind);

#endif
