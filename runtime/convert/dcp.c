/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/convert/dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "runtime/convert/dcp_internal.h"
#include "runtime/convert/read_bytes.h"
#include "topology/base/files.h"

/* The longest .metadata: that of a large model from thousands of ranks has a
 * few hundred megabytes. */
#define BYTES_MOST ((off_t)1 << 30)

bool plait_dcp_is(const char *dir)
{
    return plait_files_has(dir, PLAIT_DCP_METADATA);
}

/* -- opening -------------------------------------------------------------- */

static int read_file(struct plait_dcp *dcp, const char *path, size_t *size,
                     struct plait_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -1;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        goto done;
    }
    errno = EINVAL;
    if (!S_ISREG(st.st_mode)) {
        plait_errorf(err, "%s: is not a file", path);
        goto done;
    }
    if (st.st_size > BYTES_MOST) {
        plait_errorf(err, "%s: is longer than 1 GiB", path);
        goto done;
    }
    *size = (size_t)st.st_size;
    dcp->bytes = malloc(*size + 1);
    rc = dcp->bytes ? plait_read_bytes(fd, path, 0, dcp->bytes, *size, err)
                    : plait_errorf(err, "%s: out of memory", path);
done:
    if (fd >= 0)
        close(fd);
    return rc;
}

struct plait_dcp *plait_dcp_open(const char *dir, struct plait_error *err)
{
    struct plait_dcp *dcp = calloc(1, sizeof(*dcp));
    char path[4096 + 16];
    size_t size;

    if (!dcp || !(dcp->dir = strdup(dir))) {
        plait_errorf(err, "%s: out of memory", dir);
        goto error;
    }
    snprintf(path, sizeof(path), "%.4080s/" PLAIT_DCP_METADATA, dir);
    if (read_file(dcp, path, &size, err) < 0)
        goto error;
    dcp->pickle = plait_pickle_parse(path, dcp->bytes, size, err);
    if (!dcp->pickle || plait_dcp_metadata_read(dcp, err) < 0)
        goto error;
    return dcp;
error:
    plait_dcp_close(dcp);
    return NULL;
}

void plait_dcp_close(struct plait_dcp *dcp)
{
    int saved = errno;

    if (!dcp)
        return;
    for (int i = 0; i < dcp->n; i++) {
        free(dcp->tensors[i].name);
        free(dcp->tensors[i].chunks);
    }
    free(dcp->tensors);
    plait_pickle_destroy(dcp->pickle);
    free(dcp->bytes);
    free(dcp->dir);
    free(dcp);
    errno = saved;
}

void plait_dcp_shape(const struct plait_dcp_tensor *t, char shown[128])
{
    size_t at = 1;

    strcpy(shown, "[");
    for (int d = 0; d < t->ndim; d++)
        at += (size_t)snprintf(shown + at, 128 - at, "%s%" PRIu64,
                               d ? ", " : "", t->shape[d]);
    strcpy(shown + at, "]");
}

uint64_t plait_dcp_volume(const struct plait_dcp_tensor *t,
                          const struct plait_dcp_chunk *c)
{
    uint64_t n = 1;

    for (int d = 0; d < t->ndim; d++)
        n *= c->size[d];
    return n;
}

int plait_dcp_path(const struct plait_dcp *dcp,
                   const struct plait_dcp_tensor *t,
                   const struct plait_dcp_chunk *c, char path[4096],
                   struct plait_error *err)
{
    char name[256];
    bool plain = c->file && c->nfile > 0 && c->nfile < sizeof(name) &&
                 !memchr(c->file, 0, c->nfile);

    if (!c->file)
        return plait_dcp_wrong(
            dcp, t->name, "has a chunk of which storage_data says no place",
            err);
    if (plain) {
        memcpy(name, c->file, c->nfile);
        name[c->nfile] = '\0';
        plain = name[0] != '/' && !strstr(name, "..");
    }
    if (!plain)
        return plait_dcp_wrong(
            dcp, t->name, "has a chunk in a file outside of the folder", err);
    snprintf(path, 4096, "%.3800s/%s", dcp->dir, name);
    return 0;
}

/* -- reading -------------------------------------------------------------- */

/* Where the rows and columns of a read lie in a tensor and in one of its
 * chunks. */
struct window {
    uint64_t all;       /* columns of the tensor */
    uint64_t first, n;  /* rows that the chunk has of those that are read */
    uint64_t col, cols; /* columns of the chunk */
    uint64_t at;        /* number of the chunk at which the rows begin */
};

/* Whether the chunk has any of the rows. */
static bool meet(const struct plait_dcp_tensor *t,
                 const struct plait_dcp_chunk *c,
                 const struct plait_dcp_rows *r, struct window *w)
{
    int d = r->nlead;
    uint64_t end = r->row + r->n, last = c->begin[d] + c->size[d];
    bool columns = d + 1 < t->ndim;

    w->at = 0;
    for (int i = 0; i < d; i++) {
        if (r->lead[i] < c->begin[i] || r->lead[i] - c->begin[i] >= c->size[i])
            return false;
        w->at = w->at * c->size[i] + r->lead[i] - c->begin[i];
    }
    w->all = columns ? t->shape[d + 1] : 1;
    w->col = columns ? c->begin[d + 1] : 0;
    w->cols = columns ? c->size[d + 1] : 1;
    w->first = r->row > c->begin[d] ? r->row : c->begin[d];
    end = end < last ? end : last;
    if (w->first >= end)
        return false;
    w->n = end - w->first;
    w->at = (w->at * c->size[d] + w->first - c->begin[d]) * w->cols;
    return true;
}

static float widen(const void *from, uint64_t i, enum plait_dtype type)
{
    uint16_t bits;
    float x;

    if (type == PLAIT_F32) {
        memcpy(&x, (const char *)from + 4 * i, 4);
        return x;
    }
    memcpy(&bits, (const char *)from + 2 * i, 2);
    return type == PLAIT_BF16_T ? plait_f32_of_bf16(bits)
                                : plait_f32_of_fp16(bits);
}

static int read_window(const struct plait_dcp *dcp,
                       const struct plait_dcp_tensor *t,
                       const struct plait_dcp_chunk *c, const struct window *w,
                       float *out, struct plait_error *err)
{
    size_t size = plait_dtype_size(t->type), n = w->n * w->cols;
    char path[4096], *bytes = malloc(n * size);
    int fd = -1, rc = -1;

    if (!bytes)
        plait_errorf(err, "%s: out of memory", dcp->dir);
    if (bytes && plait_dcp_path(dcp, t, c, path, err) == 0) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        rc = fd < 0 ? plait_errorf(err, "%s: %s", path, strerror(errno))
                    : plait_read_bytes(fd, path, c->data + w->at * size, bytes,
                                       n * size, err);
    }
    if (fd >= 0)
        close(fd);
    for (uint64_t r = 0; rc == 0 && r < w->n; r++)
        for (uint64_t i = 0; i < w->cols; i++)
            out[r * w->all + w->col + i] =
                widen(bytes, r * w->cols + i, t->type);
    free(bytes);
    return rc;
}

int plait_dcp_read(const struct plait_dcp *dcp, int tensor,
                   const struct plait_dcp_rows *rows, float *out,
                   struct plait_error *err)
{
    const struct plait_dcp_tensor *t = &dcp->tensors[tensor];
    struct window w;

    for (int i = 0; i < t->nchunks; i++) {
        /* They are sorted by where they begin. */
        if (rows->nlead && t->chunks[i].begin[0] > rows->lead[0])
            break;
        if (!meet(t, &t->chunks[i], rows, &w))
            continue;
        if (read_window(dcp, t, &t->chunks[i], &w,
                        out + (w.first - rows->row) * w.all, err) < 0)
            return -1;
    }
    return 0;
}
