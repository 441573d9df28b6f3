/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_RULE_H
#define PLAIT_RUNTIME_OPTIM_RULE_H

#include "kernels/kernels.h"
#include "runtime/optim/direction.h"
#include "topology/job/optimizers.h"

/* How an optimizer steps: the update that all elements go through
 * (kernels.h), and where that depends on norms of whole tensors, the factor
 * made of them. What is kept per weight stands in topology/job/optimizers.h. */

/* Of one whole tensor, whatever its shards. */
struct plait_tensor_norms {
    double weight; /* |w| */
    double other;  /* |g|, g multiplied by the step's grad_scale; with LAMB
                      |u|; with DIRECTION that of the direction */
    double elements;
    int64_t step; /* from 1 */
};

struct plait_optim_rule {
    enum plait_update_rule update;
    /* The f of an update: by the norms, this step's rate, and whether weight
     * decay applies to the tensor. *state, 0 at first, is kept from step to
     * step. The same input gives the same bits on all ranks. NULL: f is 1 and
     * nobody needs norms. */
    double (*factor)(const struct plait_optim_config *config, double lr,
                     bool decay, const struct plait_tensor_norms *norms,
                     float *state);
    /* The name of that *state in a checkpoint: optim.NAME.TENSOR, one number;
     * NULL: there is none. */
    const char *tensor_state;
    /* What is stepped along in place of the gradient; NULL: nothing is. */
    const struct plait_direction *direction;
};

const struct plait_optim_rule *plait_optim_rule(enum plait_optim_kind kind);

#endif
