/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/idx_writer.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/images.h"
#include "topology/base/files.h"

struct plait_idx_writer {
    char *path, *temporary; /* temporary NULL: none to remove */
    FILE *file;
    uint64_t left; /* bytes that are still to come */
};

static int write_error(const struct plait_idx_writer *w,
                       struct plait_error *err)
{
    return plait_errorf(err, "%s: cannot write: %s",
                        w->temporary ? w->temporary : w->path, strerror(errno));
}

static int open_file(struct plait_idx_writer *w, struct plait_error *err)
{
    int fd = plait_files_lock(w->temporary, true);

    if (fd < 0 && errno == EWOULDBLOCK) {
        plait_errorf(err, "%s: another plait-prep is writing it", w->temporary);
        free(w->temporary);
        w->temporary = NULL; /* the other process owns it */
        errno = EWOULDBLOCK;
        return -1;
    }
    if (fd < 0)
        return write_error(w, err);
    w->file = fdopen(fd, "r+");
    if (!w->file) {
        close(fd);
        return write_error(w, err);
    }
    /* A device cannot be truncated. */
    return ftruncate(fd, 0) < 0 && errno != EINVAL ? write_error(w, err) : 0;
}

static int write_header(struct plait_idx_writer *w, int ndims,
                        const int64_t *dim, struct plait_error *err)
{
    unsigned char head[4 + 4 * 4] = {0, 0, PLAIT_IDX_BYTES, 0};

    head[3] = (unsigned char)ndims;
    w->left = 1;
    for (int i = 0; i < ndims; i++) {
        uint32_t value = htobe32((uint32_t)dim[i]);

        memcpy(head + 4 + 4 * i, &value, sizeof(value));
        w->left *= (uint64_t)dim[i];
    }
    if (fwrite(head, 1, 4 + 4 * (size_t)ndims, w->file) ==
        4 + 4 * (size_t)ndims)
        return 0;
    return write_error(w, err);
}

struct plait_idx_writer *plait_idx_writer_create(const char *path, int ndims,
                                                 const int64_t *dim,
                                                 struct plait_error *err)
{
    struct plait_idx_writer *w = calloc(1, sizeof(*w));

    if (!w) {
        plait_errorf(err, "%s: out of memory", path);
        return NULL;
    }
    w->path = strdup(path);
    if (!w->path || asprintf(&w->temporary, "%s.tmp", path) < 0) {
        w->temporary = NULL;
        plait_errorf(err, "%s: out of memory", path);
        goto error;
    }
    if (open_file(w, err) == 0 && write_header(w, ndims, dim, err) == 0)
        return w;
error:
    plait_idx_writer_destroy(w);
    return NULL;
}

int plait_idx_writer_add(struct plait_idx_writer *w, const unsigned char *data,
                         size_t n, struct plait_error *err)
{
    if (n > w->left) {
        errno = ESTALE;
        return plait_errorf(err,
                            "%s: more images than a moment ago: the file "
                            "that is read has changed",
                            w->path);
    }
    w->left -= n;
    return fwrite(data, 1, n, w->file) == n ? 0 : write_error(w, err);
}

int plait_idx_writer_sync(struct plait_idx_writer *w, struct plait_error *err)
{
    if (w->left > 0) {
        errno = ESTALE;
        return plait_errorf(err,
                            "%s: fewer images than a moment ago: the file "
                            "that is read has changed",
                            w->path);
    }
    return fflush(w->file) == 0 && fsync(fileno(w->file)) == 0
               ? 0
               : write_error(w, err);
}

int plait_idx_writer_finish(struct plait_idx_writer *w, struct plait_error *err)
{
    if (rename(w->temporary, w->path) < 0)
        return write_error(w, err);
    free(w->temporary);
    w->temporary = NULL;
    return 0;
}

void plait_idx_writer_destroy(struct plait_idx_writer *w)
{
    int saved = errno;

    if (!w)
        return;
    if (w->temporary && w->file)
        unlink(w->temporary);
    if (w->file)
        fclose(w->file);
    free(w->temporary);
    free(w->path);
    free(w);
    errno = saved;
}
