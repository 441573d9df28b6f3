/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common.h"
#include "safetensors.h"

/* What goes through the host at a time. */
#define CHUNK ((size_t)4 << 20)

struct out {
    int fd;
    const atomic_bool *cancel;
    struct plait_shard_file *file;
};

static int write_bytes(struct out *out, const void *bytes, size_t size)
{
    const char *at = bytes;
    ssize_t n;

    if (atomic_load(out->cancel)) {
        errno = ECANCELED;
        return -1;
    }
    out->file->crc = (uint32_t)crc32_z(out->file->crc, bytes, size);
    out->file->bytes += size;
    while (size > 0) {
        n = write(out->fd, at, size);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

static int write_head(struct out *out, const struct plait_part *part)
{
    size_t size;
    unsigned char *head =
        plait_safetensors_encode(part->pieces, part->n, &size);
    int ret;

    if (!head)
        return -1;
    out->file->crc = (uint32_t)crc32_z(0, NULL, 0);
    ret = write_bytes(out, head, size);
    free(head);
    return ret;
}

static int write_copy(struct out *out, const char *from, size_t left)
{
    size_t n;

    for (; left > 0; left -= n, from += n) {
        n = left < CHUNK ? left : CHUNK;
        if (write_bytes(out, from, n) < 0)
            return -1;
    }
    return 0;
}

static int write_piece(struct out *out, const struct plait_part *part,
                       int index, char *buffer)
{
    size_t left = part->pieces[index].count * sizeof(float), n;
    const char *from = (const char *)part->data[index];

    for (; left > 0; left -= n, from += n) {
        n = left < CHUNK ? left : CHUNK;
        if (plait_optim_read(part->optim, buffer, from, n) < 0 ||
            write_bytes(out, buffer, n) < 0)
            return -1;
    }
    return 0;
}

static int write_device(struct out *out, const struct plait_part *part)
{
    char *buffer = malloc(CHUNK);
    int ret = buffer ? 0 : -1, i;

    for (i = 0; i < part->n && ret == 0; i++)
        ret = write_piece(out, part, i, buffer);
    free(buffer);
    return ret;
}

static int write_all(struct out *out, const struct plait_part *part,
                     const char *copy)
{
    if (write_head(out, part) < 0)
        return -1;
    if (copy ? write_copy(out, copy, part->bytes) < 0
             : write_device(out, part) < 0)
        return -1;
    return fsync(out->fd);
}

static int describe(const char *path, struct plait_error *err)
{
    if (errno == ENOENT)
        return plait_errorf(err,
                            "%s: cannot write: the directory that rank 0 made "
                            "is not there; checkpoint.dir must be shared by "
                            "all nodes",
                            path);
    return plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
}

int plait_part_write(const struct plait_part *part, const char *copy,
                     const char *folder, int rank, const atomic_bool *cancel,
                     struct plait_shard_file *file, struct plait_error *err)
{
    struct plait_shard_file written = {.bytes = 0};
    struct out out = {.cancel = cancel, .file = &written};
    char *path;
    int ret;

    *file = written;
    if (part->n == 0)
        return 0;
    snprintf(written.name, sizeof(written.name), "rank-%05d.safetensors", rank);
    if (asprintf(&path, "%s/%s", folder, written.name) < 0)
        return plait_errorf(err, "%s: out of memory", folder);
    out.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ret =
        out.fd < 0 || write_all(&out, part, copy) < 0 ? describe(path, err) : 0;
    if (out.fd >= 0 && close(out.fd) < 0 && ret == 0)
        ret = describe(path, err);
    if (ret == 0)
        *file = written;
    free(path);
    return ret;
}

int plait_part_copy(const struct plait_part *part, char *copy,
                    struct plait_error *err)
{
    size_t bytes;
    int i;

    for (i = 0; i < part->n; i++, copy += bytes) {
        bytes = part->pieces[i].count * sizeof(float);
        if (plait_optim_read(part->optim, copy, part->data[i], bytes) < 0)
            return plait_errorf(err,
                                "checkpoint: cannot copy from the device: %s",
                                strerror(errno));
    }
    return 0;
}
