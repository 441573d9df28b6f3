/* SPDX-License-Identifier: Apache-2.0 */
/* What this device cannot do of what the configuration asks for. */
#include "config.h"

#include "kernels/kernels.h"
#include "runtime/train/run.h"

int plait_run_supported(const struct plait_job_config *c,
                        const struct plait_ops *ops, struct plait_error *err)
{
    if (c->parallel.offload & PLAIT_OFFLOAD_OPTIMIZER && !ops->gpu)
        return plait_errorf(err,
                            "parallel.offload of the optimizer is for "
                            "GPUs: on the %s its state is in the host's "
                            "memory already",
                            ops->name);
    return 0;
}
