/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_MEGATRON_MAP_H
#define PLAIT_RUNTIME_CONVERT_MEGATRON_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/checkpoint/hf_map.h"

/* Where the tensors of a model are in the files of a Megatron-LM checkpoint:
 * one file for each rank of a tensor and pipeline parallel layout. Rows of
 * linear_qkv are, for each group of heads that share k and v, their q, then k,
 * then v; rows of a gated linear_fc1 are the gate's, then up's. */

struct plait_megatron_layout {
    int tp, pp;
    bool local; /* names of --transformer-impl local, not transformer_engine */
};

/* Rows [at, at + rows) of the stored tensor `stored` are these rows and columns
 * of one of Plait's. Vectors are columns. */
struct plait_megatron_piece {
    int tensor; /* -1: zeros */
    uint64_t row, col, rows, cols;
    int stored;
    uint64_t at;
    int next; /* the next piece of the same tensor of Plait's, -1: none. Only
                 one copy of what all ranks have is in the list */
};

struct plait_megatron_stored {
    char name[128];
    bool vector;
    uint64_t rows, cols;
    int first, n; /* its pieces, in the order of their rows */
};

struct plait_megatron_map {
    struct plait_megatron_layout layout;
    int vocab; /* with the rows that pad it */
    int ntensors;
    struct plait_hf_tensor *tensors; /* Plait's */
    int *pieces_of;                  /* [ntensors] the first piece of each */
    int npieces;
    struct plait_megatron_piece *pieces;
    int nstored;
    struct plait_megatron_stored *stored; /* file by file */
    int nfiles;
    int *first; /* [nfiles + 1] first stored tensor of file pp rank * tp + tp
                   rank */
};

/* `vocab` is the padded one. The layout must divide the sizes. NULL with
 * ENOMEM. */
struct plait_megatron_map *
plait_megatron_map_create(const struct plait_model_config *model, int vocab,
                          const struct plait_megatron_layout *layout);
void plait_megatron_map_destroy(struct plait_megatron_map *map);

/* "mp_rank_00", or with a pipeline "mp_rank_00_000". */
void plait_megatron_file_name(const struct plait_megatron_layout *layout,
                              int file, char name[32]);

#endif
