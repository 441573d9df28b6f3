/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_DCP_INTERNAL_H
#define PLAIT_RUNTIME_CONVERT_DCP_INTERNAL_H

#include "runtime/convert/dcp.h"

/* What the parts of the reader of DCP's share. */

#define PLAIT_DCP_METADATA ".metadata"

/* Fills dcp->tensors in from the pickle. */
int plait_dcp_metadata_read(struct plait_dcp *dcp, struct plait_error *err);

/* -1 with EINVAL: "DIR/.metadata: tensor NAME WHAT". */
int plait_dcp_wrong(const struct plait_dcp *dcp, const char *name,
                    const char *what, struct plait_error *err);

/* The path of a chunk's file, whose name leads to no other folder. */
int plait_dcp_path(const struct plait_dcp *dcp,
                   const struct plait_dcp_tensor *tensor,
                   const struct plait_dcp_chunk *chunk, char path[4096],
                   struct plait_error *err);

/* The chunk of a tensor that begins there; NULL: none does. */
struct plait_dcp_chunk *
plait_dcp_chunk_at(struct plait_dcp_tensor *tensor,
                   const uint64_t begin[PLAIT_DCP_DIMS_MOST]);

/* How many numbers a chunk has. */
uint64_t plait_dcp_volume(const struct plait_dcp_tensor *tensor,
                          const struct plait_dcp_chunk *chunk);

#endif
