/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/convert_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "kernels/kernels.h"
#include "runtime/convert/convert.h"

int plait_convert_open(struct plait_sources *sources, const char *path,
                       struct plait_error *err)
{
    const struct plait_ops *ops = plait_ops_ref();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_comm *self =
        dev ? plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, err) : NULL;
    int rc = -1;

    if (!dev)
        plait_errorf(err, "%s: out of memory", path);
    if (self)
        rc = plait_sources_open(sources, path, self, err);
    plait_comm_destroy(self);
    if (dev)
        ops->device_destroy(dev);
    return rc;
}

/* 16-bit numbers are packed at the front. */
size_t plait_convert_narrow(float *x, size_t n, enum plait_dtype type)
{
    uint16_t bits;

    if (type == PLAIT_F32)
        return n * sizeof(*x);
    for (size_t i = 0; i < n; i++) {
        bits = type == PLAIT_BF16_T ? plait_bf16_of_f32(x[i])
                                    : plait_fp16_of_f32(x[i]);
        memcpy((char *)x + 2 * i, &bits, 2);
    }
    return n * 2;
}

static int read_rows(const struct plait_sources *from,
                     const struct plait_row_run *run, uint64_t row, uint64_t n,
                     float *to, struct plait_error *err)
{
    struct plait_tensor_slice slice = {.shape = {run->rows, run->cols},
                                       .begin = {row, 0},
                                       .box = {n, run->cols},
                                       .count = n * run->cols};
    int rc;

    if (!run->name[0]) {
        memset(to, 0, slice.count * sizeof(*to));
        return 0;
    }
    snprintf(slice.name, sizeof(slice.name), "%s", run->name);
    rc = plait_sources_fill(from, &slice, to, err);
    plait_sources_drop(from, run->name);
    return rc;
}

int plait_convert_write_run(const struct plait_sources *from,
                            const struct plait_row_run *run,
                            enum plait_dtype type, struct plait_file_out *out,
                            struct plait_error *err)
{
    uint64_t most = PLAIT_CONVERT_CHUNK / run->cols, end = run->first + run->n;
    float *rows;
    int rc = 0;

    most = most < 1 ? 1 : most > run->n ? run->n : most;
    rows = malloc((most ? most : 1) * run->cols * sizeof(*rows));
    if (!rows)
        return plait_errorf(err, "%s: out of memory", from->path);
    for (uint64_t row = run->first, n; row < end && rc == 0; row += n) {
        n = end - row < most ? end - row : most;
        rc = read_rows(from, run, row, n, rows, err);
        if (rc == 0 &&
            plait_file_out_write(
                out, rows, plait_convert_narrow(rows, n * run->cols, type)) < 0)
            rc = plait_errorf(err, "cannot write: %s", strerror(errno));
    }
    free(rows);
    return rc;
}

int plait_convert_check_parameters(const struct plait_sources *from, int64_t n,
                                   struct plait_error *err)
{
    if (n == from->manifest.parameters)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: it has %lld parameters, but its plait.yaml "
                        "describes a model of %lld",
                        from->path, (long long)from->manifest.parameters,
                        (long long)n);
}
