/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_TOOK_H
#define PLAIT_RUNTIME_MODEL_TOOK_H

#include "runtime/model/model.h"

/* Parts of a step whose measured time is compared with the plan's. */
enum plait_model_part {
    PLAIT_MODEL_PRODUCTS, /* of the layers */
    PLAIT_MODEL_ATTENTION,
    PLAIT_MODEL_PARTS
};

/* Processor time in seconds that this thread has spent in a part; NAN on a GPU,
 * which works asynchronously, and for image models. */
double plait_model_took(const struct plait_model *model,
                        enum plait_model_part part);

#endif
