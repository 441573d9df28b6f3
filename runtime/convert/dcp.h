/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_DCP_H
#define PLAIT_RUNTIME_CONVERT_DCP_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/types.h"
#include "runtime/convert/torch_tensor.h"

/* A checkpoint of torch.distributed.checkpoint's (DCP), which Megatron-core's
 * torch_dist is too: a folder with .metadata, a pickle that says of which
 * chunks each tensor consists, and files in which each chunk is a file of
 * torch.save's from some byte on. */

#define PLAIT_DCP_DIMS_MOST PLAIT_TORCH_DIMS_MOST

struct plait_dcp_chunk {
    uint64_t begin[PLAIT_DCP_DIMS_MOST], size[PLAIT_DCP_DIMS_MOST];
    const char *file; /* [nfile]; NULL: .metadata does not say where it is */
    size_t nfile;
    uint64_t offset, length; /* of what torch.save has written */
    bool transformed;        /* compressed, for example */
    uint64_t data;           /* of its numbers; known when it was checked */
};

struct plait_dcp_tensor {
    char *name; /* without what FSDP and torch.compile put into names */
    char type_name[32];
    bool supported; /* fp32, bf16 or fp16, of few dimensions */
    enum plait_dtype type;
    int ndim;
    uint64_t shape[PLAIT_DCP_DIMS_MOST];
    int nchunks;
    struct plait_dcp_chunk *chunks; /* sorted by where they begin */
    bool checked;
};

struct plait_dcp {
    char *dir;
    unsigned char *bytes; /* .metadata */
    struct plait_pickle *pickle;
    int n, room;
    struct plait_dcp_tensor *tensors; /* sorted by name */
};

/* Whether the folder is one, by the names of its files. */
bool plait_dcp_is(const char *dir);

/* Reads .metadata. A class in it that such a file never has is refused. NULL
 * with errno. */
struct plait_dcp *plait_dcp_open(const char *dir, struct plait_error *err);
void plait_dcp_close(struct plait_dcp *dcp);

/* The tensor of that name; -1: there is none. */
int plait_dcp_find(const struct plait_dcp *dcp, const char *name);

/* Checks that the chunks of a tensor cover it once, and that each is in its
 * file. Must come before plait_dcp_read(). -1 with errno. */
int plait_dcp_check(struct plait_dcp *dcp, int tensor, struct plait_error *err);

/* A tensor's shape as "[2, 3]". */
void plait_dcp_shape(const struct plait_dcp_tensor *tensor, char shown[128]);

/* Rows of a matrix in a tensor: the dimension that follows `nlead` indices
 * counts rows, and the one after it, if there is one, columns. */
struct plait_dcp_rows {
    int nlead;
    uint64_t lead[PLAIT_DCP_DIMS_MOST];
    uint64_t row, n;
};

/* To fp32 out [n, columns]. Any thread may call it. */
int plait_dcp_read(const struct plait_dcp *dcp, int tensor,
                   const struct plait_dcp_rows *rows, float *out,
                   struct plait_error *err);

#endif
