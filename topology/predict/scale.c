/* SPDX-License-Identifier: Apache-2.0 */
/* Losses that grow with the number of nodes; the model is in scale.h. */
#include "topology/predict/scale.h"

#include <math.h>

#define SIGMA 0.005
#define SLOW_SHARE 0.005

double plait_scale_crowded(const struct plait_gpu_type *gpu, double nodes)
{
    if (gpu->uplinks_known && gpu->leaf_gpus > 0)
        return 1;
    return 1 + gpu->crowding * fmax(0, log2(nodes / PLAIT_SCALE_UNCROWDED));
}

double plait_scale_waits(const struct plait_gpu_type *gpu, double gpus)
{
    double nodes = gpus / gpu->per_node;

    if (gpu->cores > 0)
        return SIGMA * sqrt(2 * log(fmax(1, nodes)));
    return SIGMA * sqrt(2 * log(gpus)) +
           gpu->stragglers * (1 - pow(1 - SLOW_SHARE, nodes));
}
