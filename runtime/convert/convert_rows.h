/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_CONVERT_ROWS_H
#define PLAIT_RUNTIME_CONVERT_CONVERT_ROWS_H

#include "kernels/types.h"
#include "runtime/checkpoint/file_out.h"
#include "runtime/checkpoint/sources.h"

/* Reads and writes a checkpoint's weights row by row in one process. */

/* Checks and maps the files. Call plait_sources_close() in any case. */
int plait_convert_open(struct plait_sources *sources, const char *path,
                       struct plait_error *err);

/* Rows that are consecutive in a file of another format. */
struct plait_row_run {
    char name[96];       /* Plait's tensor; "": rows of zeros */
    uint64_t rows, cols; /* of the whole tensor */
    uint64_t first, n;   /* which of its rows */
};

/* Converts n fp32 numbers to `type`, in place; returns their size in bytes. */
size_t plait_convert_narrow(float *x, size_t n, enum plait_dtype type);

/* Appends a run to a file as `type`, a few megabytes at a time. */
int plait_convert_write_run(const struct plait_sources *from,
                            const struct plait_row_run *run,
                            enum plait_dtype type, struct plait_file_out *out,
                            struct plait_error *err);

/* Whether a model has as many parameters as its checkpoint; -1 with EINVAL. */
int plait_convert_check_parameters(const struct plait_sources *from, int64_t n,
                                   struct plait_error *err);

#endif
