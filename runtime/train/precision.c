/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a rank's device can compute what the configuration asks for. */
#include "config.h"

#include "runtime/train/precision.h"

#include <errno.h>
#include <string.h>

#include "kernels/kernels.h"

static int set_tf32(int on, struct plait_mesh *mesh, struct plait_error *err)
{
    if (mesh->ops->allow_tf32) {
        mesh->ops->allow_tf32(mesh->dev, on);
        return 0;
    }
    if (!on)
        return 0;
    errno = ENOTSUP;
    return plait_errorf(err,
                        "train.precision: tf32 is for GPUs; on this device "
                        "(%s) use fp32 or bf16",
                        mesh->ops->name);
}

int plait_precision_set(struct plait_mesh *mesh, enum plait_precision precision,
                        struct plait_error *err)
{
    if (precision != PLAIT_FP8 ||
        (mesh->ops->has_fp8 && mesh->ops->has_fp8(mesh->dev)))
        return set_tf32(precision == PLAIT_TF32, mesh, err);
    errno = ENOTSUP;
    return plait_errorf(err, "train.precision: fp8 needs a GPU of compute "
                             "capability 8.9 or more (Ada, Hopper); with this "
                             "one use bf16");
}

int plait_precision_room(const struct plait_mesh *mesh,
                         const struct plait_job_config *config,
                         enum plait_gpu_work work, struct plait_error *err)
{
    const struct plait_gpu_facts *facts = &mesh->facts;
    struct plait_gpu_use use = {.sm = facts->capability, .work = work};

    if (!use.sm)
        return 0;
    use.cudnn = strncmp(facts->attention, "cuDNN", strlen("cuDNN")) == 0;
    return plait_fits_gpu(config, &use, err);
}
