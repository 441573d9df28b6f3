/* SPDX-License-Identifier: Apache-2.0 */
/* plait_sources_check(): reads each file once, at the disk's speed. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/blocks_in.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/comm/consensus.h"

/* Add one block of file `index`, from `at` on, to its checksum, and show it to
 * the visitor, if any, in parts that are in the cache by then. */
static int visit_parts(struct plait_sources_visitor *visitor, int index,
                       uint64_t at, const char *bytes, size_t size,
                       uint32_t *crc)
{
    size_t most = visitor ? visitor->most : size, n;

    for (size_t done = 0; done < size; done += n) {
        n = size - done < most ? size - done : most;
        *crc = libdeflate_crc32(*crc, bytes + done, n);
        if (visitor &&
            visitor->visit(visitor, index, at + done, bytes + done, n) < 0)
            return -1;
    }
    return 0;
}

static int read_blocks(struct plait_blocks_in *blocks, int index,
                       struct plait_sources_visitor *visitor, uint32_t *crc)
{
    const char *block;
    uint64_t at = 0;
    size_t n;

    for (;; at += n) {
        if (plait_blocks_in_next(blocks, &block, &n) < 0)
            return -1;
        if (n == 0)
            return 0;
        if (visit_parts(visitor, index, at, block, n, crc) < 0)
            return -1;
    }
}

static int read_file(const char *path, const struct plait_shard_file *file,
                     int index, struct plait_sources_visitor *visitor,
                     uint32_t *crc)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc, saved;
    struct plait_blocks_in *blocks;

    if (fd < 0)
        return -1;
    blocks = plait_blocks_in_create(fd, file->bytes);
    rc = blocks ? read_blocks(blocks, index, visitor, crc) : -1;
    plait_blocks_in_destroy(blocks);
    saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

int plait_sources_check_file(const struct plait_sources *s, int index,
                             struct plait_sources_visitor *visitor,
                             struct plait_error *err)
{
    const struct plait_shard_file *file = &s->manifest.files[index];
    uint32_t crc = 0;
    char *path;
    int rc;

    if (asprintf(&path, "%s/%s", s->path, file->name) < 0)
        return plait_errorf(err, "%s: out of memory", s->path);
    rc = read_file(path, file, index, visitor, &crc);
    if (rc < 0 && errno == ENODATA) {
        errno = EINVAL;
        plait_errorf(err, "%s: truncated while it was read", path);
    } else if (rc < 0) {
        plait_errorf(err, "%s: cannot load: %s", path, strerror(errno));
    } else if (crc != file->crc) {
        errno = EINVAL;
        rc = plait_errorf(err,
                          "%s: corrupt: its checksum is %08" PRIx32
                          ", the manifest says %08" PRIx32,
                          path, crc, file->crc);
    }
    free(path);
    return rc;
}

int plait_sources_check(const struct plait_sources *s, struct plait_comm *world,
                        struct plait_sources_visitor *visitor,
                        struct plait_error *err)
{
    int rc = 0;

    for (int i = 0; i < s->manifest.nfiles && rc == 0; i++)
        if (plait_sources_is_mine(world, i))
            rc = plait_sources_check_file(s, i, visitor, err);
    return plait_error_consensus(world, rc, err);
}
