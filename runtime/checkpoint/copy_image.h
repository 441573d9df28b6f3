/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_COPY_IMAGE_H
#define PLAIT_RUNTIME_CHECKPOINT_COPY_IMAGE_H

#include "runtime/checkpoint/checkpoint_private.h"

/* What one rank would write of a checkpoint, in memory: a head of
 * PLAIT_COPY_HEAD bytes, then a safetensors file. It is kept and sent
 * unchanged, between processes of one run. */

struct plait_copy_head {
    char magic[8];
    uint64_t epoch; /* of the world that made it */
    int64_t step;
    int32_t origin, ranks; /* of that world: `ranks` images make a state */
    uint64_t bytes;        /* of the whole image */
    uint64_t table;        /* of the safetensors head */
    struct plait_checkpoint_info info;
    uint64_t hash; /* of all members above and of the safetensors head */
};

#define PLAIT_COPY_HEAD ((sizeof(struct plait_copy_head) + 63) / 64 * 64)

/* Memory for an image of the shard, *size bytes, a multiple of 4; not valid
 * before it is filled. NULL with errno. */
char *plait_copy_image_create(const struct plait_rank_shard *shard,
                              size_t *size);

/* Fills in the shard's current state, and `head`, except for its sizes. -1 with
 * EDOM: the state is not finite, and the image is not valid. */
int plait_copy_image_fill(char *image, const struct plait_rank_shard *shard,
                          const struct plait_copy_head *head,
                          struct plait_error *err);

/* Whether an image may have that size, as another rank says: not more than this
 * machine's memory. */
bool plait_copy_image_fits(uint64_t size);
/* Whether `size` bytes are a valid image; *head is then its head. The tables of
 * the file in it must still pass plait_safetensors_parse(). */
int plait_copy_image_check(const char *image, size_t size,
                           struct plait_copy_head *head,
                           struct plait_error *err);
/* The hash of `image`, whose head says where its table ends. */
uint64_t plait_copy_image_hash(const char *image);

#endif
