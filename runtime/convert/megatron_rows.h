/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_MEGATRON_ROWS_H
#define PLAIT_RUNTIME_CONVERT_MEGATRON_ROWS_H

#include "runtime/convert/convert.h"
#include "runtime/convert/megatron_args.h"

/* The tensors of a Megatron model, put together from those that a checkpoint of
 * either form stores. */

struct plait_megatron_source {
    const char *path;
    const struct plait_megatron_args *args;
    const struct plait_megatron_map *map;
    /* Rows [row, row + n) of map->stored[stored] as fp32; on any thread. */
    int (*read)(const void *from, int stored, uint64_t row, uint64_t n,
                float *out, struct plait_error *err);
    const void *from;
};

/* As plait_convert_import(). */
int plait_megatron_import(const struct plait_megatron_source *source,
                          const char *dir, struct plait_converted *done,
                          struct plait_error *err);

/* Whether the folder is a checkpoint of Megatron-core's form torch_dist, or
 * another distributed one. */
bool plait_megatron_is_distributed(const char *path);

/* As plait_convert_from_megatron(), from such a folder. */
int plait_convert_from_megatron_dist(const char *path, const char *dir,
                                     struct plait_converted *done,
                                     struct plait_error *err);

#endif
