/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "checkpoint.h"
#include "common.h"
#include "folder.h"
#include "safetensors.h"

/* A stored piece, wherever it is. */
struct source {
    struct plait_piece piece;
    const float *data;
};

struct shard {
    void *map;
    size_t size;
};

struct load {
    const char *path;
    struct plait_manifest manifest;
    struct shard *shards; /* [manifest.nfiles] */
    struct source *sources;
    int nsources;
};

static int map_shard(const struct load *l, int index, struct plait_error *err)
{
    const struct plait_shard_file *file = &l->manifest.files[index];
    struct shard *shard = &l->shards[index];
    char *path = NULL;
    int fd = -1, ret = -1;
    struct stat st;
    void *map;

    if (asprintf(&path, "%s/%s", l->path, file->name) < 0)
        return plait_errorf(err, "%s: out of memory", l->path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        plait_errorf(err, "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->bytes ||
        file->bytes == 0) {
        errno = EINVAL;
        plait_errorf(err,
                     "%s: truncated or changed: %lld bytes, the manifest "
                     "says %" PRIu64,
                     path, (long long)st.st_size, file->bytes);
        goto done;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        plait_errorf(err, "%s: mmap: %s", path, strerror(errno));
        goto done;
    }
    shard->map = map;
    shard->size = (size_t)st.st_size;
    ret = 0;
done:
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}

static int check_shard(const struct load *l, int index, struct plait_error *err)
{
    const struct plait_shard_file *file = &l->manifest.files[index];
    const struct shard *shard = &l->shards[index];
    uint32_t crc =
        (uint32_t)crc32_z(crc32_z(0, NULL, 0), shard->map, shard->size);

    if (crc == file->crc)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s/%s: garbled: its checksum is %08" PRIx32
                        ", the manifest says %08" PRIx32,
                        l->path, file->name, crc, file->crc);
}

static int add_sources(struct load *l, int index, struct plait_error *err)
{
    const struct shard *shard = &l->shards[index];
    struct plait_stored *stored;
    struct source *bigger;
    char *name;
    int n, i, ret;

    if (asprintf(&name, "%s/%s", l->path, l->manifest.files[index].name) < 0)
        return plait_errorf(err, "%s: out of memory", l->path);
    ret = plait_safetensors_parse(name, shard->map, shard->size, &stored, &n,
                                  err);
    free(name);
    if (ret < 0)
        return -1;
    bigger = realloc(l->sources, (l->nsources + n + 1) * sizeof(*bigger));
    if (!bigger) {
        free(stored);
        return plait_errorf(err, "%s: out of memory", l->path);
    }
    l->sources = bigger;
    for (i = 0; i < n; i++) {
        bigger[l->nsources].piece = stored[i].piece;
        bigger[l->nsources++].data =
            (const float *)((const char *)shard->map + stored[i].offset);
    }
    free(stored);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->piece.name,
                  ((const struct source *)b)->piece.name);
}

static int read_manifest(struct load *l, struct plait_comm *world,
                         struct plait_error *err)
{
    char *text = NULL;
    size_t size = 0;
    int ret = 0;

    if (plait_comm_rank(world) == 0)
        ret = plait_manifest_text(l->path, &text, &size, err);
    if (plait_hand_out(world, ret, &text, &size, err) < 0)
        return -1;
    ret = plait_manifest_parse(l->path, text, size, &l->manifest, err);
    free(text);
    return plait_agree(world, ret, err);
}

/* Map every shard; each rank holds its share of them against the manifest. */
static int open_shards(struct load *l, int rank, int size,
                       struct plait_error *err)
{
    int i;

    l->shards = calloc(l->manifest.nfiles + 1, sizeof(*l->shards));
    if (!l->shards)
        return plait_errorf(err, "%s: out of memory", l->path);
    for (i = 0; i < l->manifest.nfiles; i++)
        if (map_shard(l, i, err) < 0)
            return -1;
    for (i = rank; i < l->manifest.nfiles; i += size)
        if (check_shard(l, i, err) < 0)
            return -1;
    return 0;
}

static int index_shards(struct load *l, struct plait_error *err)
{
    int i;

    for (i = 0; i < l->manifest.nfiles; i++)
        if (add_sources(l, i, err) < 0)
            return -1;
    if (l->nsources > 0)
        qsort(l->sources, l->nsources, sizeof(*l->sources), by_name);
    return 0;
}

/* The first of the sources with this name, or the end. */
static const struct source *find(const struct load *l, const char *name)
{
    int low = 0, high = l->nsources, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (strcmp(l->sources[middle].piece.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return l->sources + low;
}

static int check_shape(const struct load *l, const struct plait_piece *want,
                       const struct plait_piece *have, struct plait_error *err)
{
    if (want->shape[0] == have->shape[0] && want->shape[1] == have->shape[1])
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: tensor %s is [%" PRIu64 ", %" PRIu64
                        "] there, [%" PRIu64 ", %" PRIu64 "] in this model",
                        l->path, want->name, have->shape[0], have->shape[1],
                        want->shape[0], want->shape[1]);
}

/* Gather one piece into `buffer`; padding is 0. */
static int fill(const struct load *l, const struct plait_piece *piece,
                float *buffer, struct plait_error *err)
{
    const struct source *s = find(l, piece->name);
    const struct source *end = l->sources + l->nsources;
    uint64_t got = 0;

    errno = EINVAL;
    if (s == end || strcmp(s->piece.name, piece->name) != 0)
        return plait_errorf(err, "%s: no tensor %s, which this model has",
                            l->path, piece->name);
    memset(buffer, 0, piece->count * sizeof(*buffer));
    for (; s < end && !strcmp(s->piece.name, piece->name); s++) {
        if (check_shape(l, piece, &s->piece, err) < 0)
            return -1;
        got += plait_piece_copy(piece, buffer, &s->piece, s->data);
    }
    if (got == plait_piece_inside(piece))
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: tensor %s: %" PRIu64 " elements for a part of "
                        "%" PRIu64,
                        l->path, piece->name, got, plait_piece_inside(piece));
}

static int fill_all(const struct load *l, const struct plait_optim *optim,
                    struct plait_error *err)
{
    struct plait_piece *pieces = NULL;
    float **data = NULL, *buffer = NULL;
    int n = plait_pieces_create(optim, &pieces, &data, err), i, ret;
    size_t most = 1;

    for (i = 0; i < n; i++)
        if (pieces[i].count > most)
            most = pieces[i].count;
    if (n >= 0 && !(buffer = malloc(most * sizeof(*buffer))))
        n = plait_errorf(err, "%s: out of memory", l->path);
    for (i = 0, ret = n < 0 ? -1 : 0; i < n && ret == 0; i++) {
        ret = fill(l, &pieces[i], buffer, err);
        if (ret == 0 &&
            plait_optim_write(optim, data[i], buffer,
                              pieces[i].count * sizeof(*buffer)) < 0)
            ret = plait_errorf(err, "%s: cannot copy to the device: %s",
                               l->path, strerror(errno));
    }
    free(buffer);
    free(pieces);
    free(data);
    return ret;
}

static int check_parameters(const struct load *l,
                            const struct plait_model *model,
                            struct plait_error *err)
{
    if (l->manifest.parameters == model->parameters)
        return 0;
    errno = EINVAL;
    return plait_errorf(
        err, "%s: of a model of %" PRId64 " parameters, this one has %" PRId64,
        l->path, l->manifest.parameters, model->parameters);
}

static void load_free(struct load *l)
{
    int i;

    for (i = 0; l->shards && i < l->manifest.nfiles; i++)
        if (l->shards[i].map)
            munmap(l->shards[i].map, l->shards[i].size);
    free(l->shards);
    free(l->sources);
    free(l->manifest.files);
}

/* As against a file system or a machine that fails. */
static bool is_not_whole(int number)
{
    return number == EINVAL || number == ENOENT;
}

int plait_checkpoint_load(const char *path, struct plait_checkpoint_info *info,
                          struct plait_model *model, struct plait_optim *optim,
                          struct plait_error *err)
{
    struct plait_comm *world = model->par->world;
    struct load l = {.path = path};
    struct plait_error unasked;
    int ret;

    if (!err)
        err = &unasked;
    /* Nothing is parsed before all of it was held against its checksum, and
     * nothing of the model is touched before all of it was parsed. */
    ret = read_manifest(&l, world, err);
    if (ret == 0) {
        ret = open_shards(&l, plait_comm_rank(world), plait_comm_size(world),
                          err);
        ret = plait_agree(world, ret, err);
    }
    if (ret == 0)
        ret = plait_agree(world, index_shards(&l, err), err);
    if (ret < 0 && is_not_whole(errno)) {
        errno = EBADMSG;
    } else if (ret == 0) {
        ret = fill_all(&l, optim, err);
        if (ret == 0)
            ret = check_parameters(&l, model, err);
        ret = plait_agree(world, ret, err);
    }
    if (ret == 0)
        *info = l.manifest.info;
    load_free(&l);
    return ret;
}
