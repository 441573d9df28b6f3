/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_ACTIVATIONS_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_ACTIVATIONS_H

#include <string.h>

#include "topology/predict/estimate_shape.h"

static inline bool plait_shape_on_cpu(const struct plait_shape *s)
{
    return strcmp(s->gpu->name, "cpu") == 0;
}

/* Bytes of a pipeline rank's activations in this many slots, each a micro-batch
 * in flight, and of its work space. */
double plait_activations_bytes(const struct plait_shape *s,
                               const struct plait_rank_sizes *z, int rank,
                               int slots);
/* The part of these that is offloaded to the host's memory, for all layers. */
double plait_activations_offloaded(const struct plait_shape *s,
                                   const struct plait_rank_sizes *z, int rank,
                                   int slots);

#endif
