/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "checkpoint.h"
#include "common.h"
#include "folder.h"
#include "safetensors.h"

/* What goes through the host at a time. */
#define CHUNK ((size_t)4 << 20)

struct save {
    const struct plait_model *model;
    const struct plait_optim *optim;
    struct plait_comm *world;
    char *temporary, *path;
    int n; /* pieces that this rank writes */
    struct plait_piece *pieces;
    float **data;
    struct plait_shard_file file; /* bytes 0: nothing to write */
};

/* FNV-1a over what makes two pieces the same. */
static uint64_t fingerprint(const struct plait_piece *p)
{
    const uint64_t numbers[] = {p->begin[0], p->begin[1], p->box[0],
                                p->box[1],   p->first,    p->count};
    const unsigned char *bytes = (const unsigned char *)numbers;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *c;
    size_t i;

    for (c = p->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (i = 0; i < sizeof(numbers); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash ? hash : 1;
}

/* A piece of one rank among those of all. */
struct owner {
    uint64_t hash;
    int rank;
};

static int by_hash(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;

    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->rank - y->rank;
}

/* Everyone's fingerprints, sorted; 0 fills up. */
static struct owner *gather_owners(struct save *s, size_t *total)
{
    int size = plait_comm_size(s->world);
    double most = s->n;
    uint64_t *mine = NULL, *all = NULL;
    struct owner *owners = NULL;
    size_t room, i;

    if (plait_comm_host_all_reduce(s->world, &most, 1, PLAIT_MAX) < 0)
        return NULL;
    room = (size_t)most;
    *total = room * size;
    mine = calloc(room + 1, sizeof(*mine));
    all = calloc(*total + 1, sizeof(*all));
    owners = calloc(*total + 1, sizeof(*owners));
    if (!mine || !all || !owners)
        goto error;
    for (i = 0; i < (size_t)s->n; i++)
        mine[i] = fingerprint(&s->pieces[i]);
    if (room > 0 && plait_comm_host_all_gather(s->world, mine, all,
                                               room * sizeof(*mine)) < 0)
        goto error;
    for (i = 0; i < *total; i++)
        owners[i] = (struct owner){all[i], (int)(i / room)};
    qsort(owners, *total, sizeof(*owners), by_hash);
    free(mine);
    free(all);
    return owners;
error:
    free(mine);
    free(all);
    free(owners);
    return NULL;
}

/* Of those that hold a piece, the one whose turn the fingerprint says, so
 * that replicas share the writing. */
static int writer_of(const struct owner *owners, size_t total, uint64_t hash)
{
    size_t low = 0, high = total, middle, n = 0;

    while (low < high) {
        middle = (low + high) / 2;
        if (owners[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n < total && owners[low + n].hash == hash)
        n++;
    return owners[low + (hash >> 32) % n].rank;
}

/* The tied copy on the last stage is cut along other borders than the first
 * stage's, so it must go by itself. */
static bool is_tied_copy(const struct save *s, const struct plait_tensor *t)
{
    const struct plait_parallel *par = s->model->par;

    return t->tied && par->coord.at[PLAIT_PP] > 0;
}

/* Collective. Keep of this rank's pieces those that it writes. */
static int choose(struct save *s, const struct plait_optim *optim,
                  struct plait_error *err)
{
    const struct plait_optim_slice *slices;
    int rank = plait_comm_rank(s->world), n = 0, i;
    struct owner *owners;
    size_t total;

    plait_optim_slices(optim, &slices);
    for (i = 0; i < s->n; i++) {
        if (is_tied_copy(s, slices[i / PLAIT_PIECES_PER_SLICE].tensor))
            continue;
        s->pieces[n] = s->pieces[i];
        s->data[n++] = s->data[i];
    }
    s->n = n;
    owners = gather_owners(s, &total);
    if (!owners)
        return plait_errorf(err,
                            "checkpoint: cannot gather the owners of the "
                            "tensors: %s",
                            plait_comm_error(s->world));
    for (n = i = 0; i < s->n; i++) {
        if (writer_of(owners, total, fingerprint(&s->pieces[i])) != rank)
            continue;
        s->pieces[n] = s->pieces[i];
        s->data[n++] = s->data[i];
    }
    s->n = n;
    free(owners);
    return 0;
}

static int write_bytes(struct save *s, int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    ssize_t n;

    s->file.crc = (uint32_t)crc32_z(s->file.crc, bytes, size);
    s->file.bytes += size;
    while (size > 0) {
        n = write(fd, at, size);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

static int write_piece(struct save *s, int fd, int index, char *buffer)
{
    size_t left = s->pieces[index].count * sizeof(float), part;
    const char *from = (const char *)s->data[index];

    for (; left > 0; left -= part, from += part) {
        part = left < CHUNK ? left : CHUNK;
        if (plait_optim_read(s->optim, buffer, from, part) < 0 ||
            write_bytes(s, fd, buffer, part) < 0)
            return -1;
    }
    return 0;
}

static int write_all(struct save *s, int fd, char *buffer)
{
    unsigned char *head;
    size_t size;
    int ret, i;

    head = plait_safetensors_encode(s->pieces, s->n, &size);
    if (!head)
        return -1;
    s->file.crc = (uint32_t)crc32_z(0, NULL, 0);
    ret = write_bytes(s, fd, head, size);
    free(head);
    for (i = 0; i < s->n && ret == 0; i++)
        ret = write_piece(s, fd, i, buffer);
    return ret == 0 ? fsync(fd) : -1;
}

static int write_shard(struct save *s, struct plait_error *err)
{
    char *path = NULL, *buffer = NULL;
    int fd = -1, ret = -1;

    if (s->n == 0)
        return 0;
    snprintf(s->file.name, sizeof(s->file.name), "rank-%05d.safetensors",
             plait_comm_rank(s->world));
    buffer = malloc(CHUNK);
    if (!buffer || asprintf(&path, "%s/%s", s->temporary, s->file.name) < 0) {
        plait_errorf(err, "%s: out of memory", s->temporary);
        goto done;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT) {
        plait_errorf(err,
                     "%s: cannot write: the directory that rank 0 made "
                     "is not there; checkpoint.dir must be shared by "
                     "all nodes",
                     path);
        goto done;
    }
    ret = fd < 0 ? -1 : write_all(s, fd, buffer);
    if (ret < 0)
        plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    if (fd >= 0 && close(fd) < 0 && ret == 0)
        ret = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
done:
    free(buffer);
    free(path);
    return ret;
}

/* No element of the model may be missing, and none be there twice. */
static int check_complete(struct save *s, struct plait_error *err)
{
    double written = 0, want;
    int i;

    for (i = 0; i < s->n; i++)
        written += (double)plait_piece_inside(&s->pieces[i]);
    if (plait_comm_host_all_reduce(s->world, &written, 1, PLAIT_SUM) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(s->world));
    want = (double)PLAIT_PIECES_PER_SLICE * (double)s->model->parameters;
    if (written == want)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "checkpoint: the ranks hold %.0f elements of weights "
                        "and moments, the model has %.0f",
                        written, want);
}

static int write_manifest(struct save *s, const struct plait_shard_file *files,
                          const struct plait_checkpoint_info *info,
                          struct plait_error *err)
{
    struct plait_manifest m = {.info = *info,
                               .parameters = s->model->parameters};
    int size = plait_comm_size(s->world), i, ret;

    m.files = calloc(size, sizeof(*m.files));
    if (!m.files)
        return plait_errorf(err, "%s: out of memory", s->temporary);
    for (i = 0; i < size; i++)
        if (files[i].bytes > 0)
            m.files[m.nfiles++] = files[i];
    ret = plait_manifest_write(s->temporary, &m, err);
    free(m.files);
    return ret;
}

/* Collective. Rank 0 learns of all shards and closes the checkpoint. */
static int finish(struct save *s, const char *dir,
                  const struct plait_checkpoint_info *info,
                  struct plait_error *err)
{
    struct plait_shard_file *files =
        calloc(plait_comm_size(s->world), sizeof(*files));
    int ret = files ? 0 : plait_errorf(err, "%s: out of memory", dir);

    if (plait_checkpoint_agree(s->world, ret, err) < 0) {
        ret = -1;
    } else if (plait_comm_host_all_gather(s->world, &s->file, files,
                                          sizeof(*files)) < 0) {
        ret = plait_errorf(err, "checkpoint: %s", plait_comm_error(s->world));
    } else {
        if (plait_comm_rank(s->world) == 0 &&
            (write_manifest(s, files, info, err) < 0 ||
             plait_folder_commit(dir, s->temporary, s->path, err) < 0))
            ret = -1;
        ret = plait_checkpoint_agree(s->world, ret, err);
    }
    free(files);
    return ret;
}

static int write_checkpoint(struct save *s, const char *dir,
                            const struct plait_checkpoint_info *info,
                            const struct plait_optim *optim,
                            struct plait_error *err)
{
    bool first = plait_comm_rank(s->world) == 0;
    int ret;

    s->n = plait_pieces_create(optim, &s->pieces, &s->data, err);
    ret = s->n;
    s->temporary = plait_folder_temporary(dir, info->step);
    s->path = plait_folder_path(dir, info->step);
    if (ret >= 0 && (!s->temporary || !s->path))
        ret = plait_errorf(err, "%s: out of memory", dir);
    if (ret >= 0 && first)
        ret = plait_folder_prepare(dir, s->temporary, err);
    if (plait_checkpoint_agree(s->world, ret < 0 ? -1 : 0, err) < 0)
        return -1;
    if (choose(s, optim, err) < 0 || check_complete(s, err) < 0)
        return -1;
    ret = plait_checkpoint_agree(s->world, write_shard(s, err), err);
    if (ret == 0)
        ret = finish(s, dir, info, err);
    return ret;
}

int plait_checkpoint_save(const char *dir, int keep,
                          const struct plait_checkpoint_info *info,
                          struct plait_model *model, struct plait_optim *optim,
                          struct plait_error *err)
{
    struct save s = {
        .model = model, .optim = optim, .world = model->par->world};
    struct plait_error unasked;
    int ret, saved;

    if (!err)
        err = &unasked;
    ret = write_checkpoint(&s, dir, info, optim, err);
    saved = errno;
    if (ret < 0 && s.temporary && plait_comm_rank(s.world) == 0)
        plait_folder_remove(s.temporary);
    errno = saved;
    if (ret == 0 && plait_comm_rank(s.world) == 0)
        ret = plait_folder_prune(dir, keep, err);
    ret = plait_checkpoint_agree(s.world, ret, err);
    free(s.temporary);
    free(s.path);
    free(s.pieces);
    free(s.data);
    return ret;
}
