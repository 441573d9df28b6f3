/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a rank's part of a checkpoint, from the state or a copy of it, to its
 * safetensors file. */
#define _DEFAULT_SOURCE
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint_private.h"
#include "runtime/checkpoint/file_out.h"
#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/safetensors.h"

/* Bytes that are copied from the device at a time, and bytes that are checked
 * and summed at a time, while they are cached. */
#define CHUNK ((size_t)4 << 20)
#define PART ((size_t)256 << 10)

struct out {
    struct plait_file_out to;
    struct plait_error *why; /* set if a number was not finite */
    const atomic_bool *cancel;
};

/* The size of the head of a file in memory: the length of its JSON, and that
 * JSON. */
static size_t head_size(const char *image)
{
    uint64_t json;

    memcpy(&json, image, sizeof(json));
    return sizeof(json) + (size_t)le64toh(json);
}

static int write_bytes(struct out *out, const void *bytes, size_t size)
{
    if (atomic_load(out->cancel)) {
        errno = ECANCELED;
        return -1;
    }
    return plait_file_out_write(&out->to, bytes, size);
}

static int write_head(struct out *out, const struct plait_rank_shard *shard,
                      const char *image)
{
    size_t size;
    unsigned char *head;
    int rc;

    if (image)
        return write_bytes(out, image, head_size(image));
    head = plait_safetensors_encode(shard->slices, shard->n, &size);
    if (!head)
        return -1;
    rc = write_bytes(out, head, size);
    free(head);
    return rc;
}

/* Write part of a piece, unless it is not finite. */
static int write_part(struct out *out, const struct plait_rank_shard *shard,
                      int index, size_t first, const float *from, size_t n)
{
    const char *name = shard->slices[index].name;

    if (plait_finite_check(name, first, from, n, out->why) < 0)
        return -1;
    return write_bytes(out, from, n * sizeof(*from));
}

/* Where a piece lies as fp32 in memory of the host; NULL: nowhere. */
static const float *host_data(const struct plait_rank_shard *shard, int index)
{
    const struct plait_optim_piece *piece = &shard->pieces[index];

    if (piece->home == PLAIT_PIECE_CODES || piece->home == PLAIT_PIECE_BF16 ||
        (piece->home == PLAIT_PIECE_WEIGHTS &&
         plait_optim_shards(shard->optim)->state_ops->gpu))
        return NULL;
    return piece->data;
}

static int read_piece(const struct plait_rank_shard *shard, int index,
                      size_t first, size_t n, float *to,
                      struct plait_error *err)
{
    const struct plait_optim_piece *piece = &shard->pieces[index];

    if (plait_optim_read_piece(shard->optim, piece, first, n, to) == 0)
        return 0;
    return plait_errorf(err, "checkpoint: cannot copy from the device: %s",
                        plait_optim_read_error(shard->optim));
}

/* Write one piece: from the copy, or without one from where it lies, or through
 * `buffer`. */
static int write_slice(struct out *out, const struct plait_rank_shard *shard,
                       int index, const float *copy, float *buffer)
{
    const struct plait_optim_piece *piece = &shard->pieces[index];
    size_t most, n;

    if (!copy)
        copy = host_data(shard, index);
    most = (copy ? PART : CHUNK) / sizeof(*buffer);
    for (size_t at = 0; at < piece->count; at += n) {
        n = piece->count - at < most ? piece->count - at : most;
        if (!copy && read_piece(shard, index, at, n, buffer, out->why) < 0)
            return -1;
        if (write_part(out, shard, index, at, copy ? copy + at : buffer, n) < 0)
            return -1;
    }
    return 0;
}

static int write_slices(struct out *out, const struct plait_rank_shard *shard,
                        const float *copy)
{
    float *buffer = copy ? NULL : malloc(CHUNK);
    int rc = copy || buffer ? 0 : -1;

    for (int i = 0; i < shard->n && rc == 0; i++) {
        rc = write_slice(out, shard, i, copy, buffer);
        if (copy)
            copy += shard->pieces[i].count;
    }
    free(buffer);
    return rc;
}

static int write_all(struct out *out, const struct plait_rank_shard *shard,
                     const char *image)
{
    const void *data = image ? image + head_size(image) : NULL;

    if (write_head(out, shard, image) < 0)
        return -1;
    return write_slices(out, shard, data);
}

static int describe_failure(const char *path, struct plait_error *err)
{
    if (err->text[0])
        return -1; /* described already */
    if (errno == ENOENT)
        return plait_errorf(err,
                            "%s: cannot write: the directory that rank 0 made "
                            "is missing: it was removed, or checkpoint.dir is "
                            "not shared by all nodes",
                            path);
    return plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
}

int plait_rank_shard_write(const struct plait_rank_shard *shard,
                           const char *image, const char *directory, int rank,
                           const atomic_bool *cancel,
                           struct plait_shard_file *file,
                           struct plait_error *err)
{
    struct plait_shard_file written = {.bytes = 0};
    struct out out = {.cancel = cancel, .why = err};
    char *path;
    int rc;

    *file = written;
    err->text[0] = '\0';
    if (shard->n == 0)
        return 0;
    snprintf(written.name, sizeof(written.name), "rank-%05d.safetensors", rank);
    if (asprintf(&path, "%s/%s", directory, written.name) < 0)
        return plait_errorf(err, "%s: out of memory", directory);
    rc = plait_file_out_open_image(&out.to, path, image) < 0 ||
                 write_all(&out, shard, image) < 0
             ? describe_failure(path, err)
             : 0;
    if (plait_file_out_close(&out.to, rc == 0) < 0 && rc == 0)
        rc = describe_failure(path, err);
    written.bytes = out.to.bytes;
    written.crc = out.to.crc;
    if (rc == 0)
        *file = written;
    free(path);
    return rc;
}

/* Memory that is already backed by pages. */
static char *allocate(size_t size)
{
    const size_t huge = (size_t)2 << 20;
    void *room;

    if (size < huge)
        return malloc(size);
    errno = posix_memalign(&room, huge, size);
    if (errno)
        return NULL;
    madvise(room, size, MADV_HUGEPAGE);
    memset(room, 0, size);
    return room;
}

char *plait_rank_shard_image(const struct plait_rank_shard *shard)
{
    size_t size;
    unsigned char *head =
        plait_safetensors_encode(shard->slices, shard->n, &size);
    char *image = head ? allocate(size + shard->bytes) : NULL;

    if (image)
        memcpy(image, head, size);
    free(head);
    return image;
}

char *plait_rank_shard_data(char *image)
{
    return image + head_size(image);
}

int plait_rank_shard_copy(const struct plait_rank_shard *shard, char *data,
                          struct plait_error *err)
{
    float *to = (float *)(void *)data;

    for (int i = 0; i < shard->n; to += shard->pieces[i++].count)
        if (read_piece(shard, i, 0, shard->pieces[i].count, to, err) < 0)
            return -1;
    return 0;
}

int plait_rank_shard_check(const struct plait_rank_shard *shard,
                           struct plait_error *err)
{
    size_t most = CHUNK / sizeof(float), n;
    float *buffer = malloc(CHUNK);
    int rc = 0;

    if (!buffer)
        return plait_errorf(err, "checkpoint: out of memory");
    for (int i = 0; i < shard->n; i++) {
        const struct plait_optim_piece *p = &shard->pieces[i];

        for (size_t at = 0; at < p->count && rc == 0; at += n) {
            n = p->count - at < most ? p->count - at : most;
            rc = read_piece(shard, i, at, n, buffer, err);
            if (rc == 0)
                rc = plait_finite_check(shard->slices[i].name, at, buffer, n,
                                        err);
        }
    }
    free(buffer);
    return rc;
}
