/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_MODEL_TOOK_H
#define PLAIT_RUNTIME_MODEL_TOOK_H

#include "runtime/model/model.h"

/* What a step is made of, for plan against actual. */
enum plait_model_part {
    PLAIT_MODEL_PRODUCTS, /* of the layers */
    PLAIT_MODEL_ATTENTION,
    PLAIT_MODEL_PARTS
};

/* Seconds of processor time that this thread has spent in a part; NAN on a GPU,
 * which works beside the host, and of image models. */
double plait_model_took(const struct plait_model *model,
                        enum plait_model_part part);

#endif
