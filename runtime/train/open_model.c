/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/open_model.h"

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/precision.h"
#include "runtime/train/run.h"

int plait_open_model(struct plait_session *s, const char *dir,
                     enum plait_gpu_work work,
                     struct plait_inference **inference,
                     struct plait_error *err)
{
    struct plait_comm *world = s->world.comm;
    struct plait_shards *shards;
    int rc = plait_run_supported(s->config, s->world.ops, err);

    if (rc == 0 && plait_is_image_model(&s->config->model))
        rc = plait_errorf(err, "%s: an image model has no text", dir);
    if (rc == 0)
        rc = plait_precision_room(s->mesh, s->config, work, err);
    *inference =
        rc == 0 ? plait_inference_create(s->config, s->mesh, err) : NULL;
    if (plait_error_consensus(world, *inference ? 0 : -1, err) < 0)
        return -1;
    shards = plait_inference_shards(*inference);
    if (plait_checkpoint_start(dir, shards, NULL, err) < 0)
        return -1;
    return plait_error_consensus(world,
                                 plait_shards_gather_weights(shards, err), err);
}
