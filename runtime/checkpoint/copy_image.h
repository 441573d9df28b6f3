/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPY_IMAGE_H
#define PLAIT_RUNTIME_CHECKPOINT_COPY_IMAGE_H

#include "runtime/checkpoint/checkpoint_private.h"

/* What one rank would write of a checkpoint, in memory: a head, and behind
 * PLAIT_COPY_HEAD bytes a safetensors file. It is kept and sent as it is,
 * between processes of one run. */

struct plait_copy_head {
    char magic[8];
    uint64_t epoch; /* of the world that made it */
    int64_t step;
    int32_t origin, ranks; /* of that world: one image each is a state */
    uint64_t bytes;        /* of the whole image */
    uint64_t table;        /* of the safetensors head */
    struct plait_checkpoint_info info;
    uint64_t hash; /* of all above and of the safetensors head */
};

#define PLAIT_COPY_HEAD ((sizeof(struct plait_copy_head) + 63) / 64 * 64)

/* Room for what the shard holds, *size bytes, a multiple of 4; no image yet.
 * NULL with errno. */
char *plait_copy_image_create(const struct plait_rank_shard *shard,
                              size_t *size);

/* What the shard has now; head says of what, but for its sizes. -1 with EDOM:
 * it is not finite, and this is no image. */
int plait_copy_image_fill(char *image, const struct plait_rank_shard *shard,
                          const struct plait_copy_head *head,
                          struct plait_error *err);

/* Whether `size` bytes are an image, whose head is then *head. The tables of
 * the file in it are for plait_safetensors_parse(). */
int plait_copy_image_check(const char *image, size_t size,
                           struct plait_copy_head *head,
                           struct plait_error *err);
/* Of `image`, whose head says where its table ends. */
uint64_t plait_copy_image_hash(const char *image);

#endif
