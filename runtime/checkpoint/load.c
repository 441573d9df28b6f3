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
#include "runtime/parallel/shard.h"
#include "safetensors.h"

/* Each shard is held against its checksum and has its head read by one rank,
 * which tells the others what is where. After that a rank opens those that
 * it needs pieces of: in the layout that has written them, under ZeRO its own
 * alone. Of ranks that hold the same, one reads each piece and sends it to the
 * others. */

/* A stored piece, wherever it is. */
struct source {
    struct plait_piece piece;
    uint64_t offset; /* of its data in the file */
    int file;        /* of the manifest; -1: nothing */
};

struct shard {
    void *map; /* NULL: not open */
    size_t size;
};

struct load {
    const char *path;
    struct plait_manifest manifest;
    struct shard *shards;   /* [manifest.nfiles] */
    struct source *sources; /* by name, once all ranks' are there */
    int nsources;
    struct plait_piece *pieces; /* that this rank wants, and where to */
    float **data;
    int npieces;
    struct plait_comm *replicas; /* who wants the same; NULL: nobody */
    int *reader;                 /* [npieces] of them, where there are any */
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
    for (i = 0; i < n; i++)
        bigger[l->nsources++] =
            (struct source){stored[i].piece, stored[i].offset, index};
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

/* This rank's share of the shards. Nothing is parsed before all of them were
 * held against their checksums. */
static int read_shards(struct load *l, struct plait_comm *world,
                       struct plait_error *err)
{
    int rank = plait_comm_rank(world), size = plait_comm_size(world), i;
    int ret = 0;

    l->shards = calloc(l->manifest.nfiles + 1, sizeof(*l->shards));
    if (!l->shards)
        ret = plait_errorf(err, "%s: out of memory", l->path);
    for (i = rank; i < l->manifest.nfiles && ret == 0; i += size)
        if (map_shard(l, i, err) < 0 || check_shard(l, i, err) < 0)
            ret = -1;
    ret = plait_agree(world, ret, err);
    for (i = rank; i < l->manifest.nfiles && ret == 0; i += size)
        ret = add_sources(l, i, err);
    return plait_agree(world, ret, err);
}

/* Everyone's sources to everyone. */
static int share_sources(struct load *l, struct plait_comm *world,
                         struct plait_error *err)
{
    double most = l->nsources;
    struct source *mine, *all;
    size_t room, total, i;
    int ret = 0;

    if (plait_comm_host_all_reduce(world, &most, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    room = (size_t)most;
    total = room * plait_comm_size(world);
    mine = realloc(l->sources, (room + 1) * sizeof(*mine));
    if (mine)
        l->sources = mine;
    all = malloc((total + 1) * sizeof(*all));
    if (!mine || !all)
        ret = plait_errorf(err, "%s: out of memory", l->path);
    ret = plait_agree(world, ret, err);
    for (i = l->nsources; i < room && ret == 0; i++)
        mine[i] = (struct source){.file = -1};
    if (ret == 0 && room > 0 &&
        plait_comm_host_all_gather(world, mine, all, room * sizeof(*all)) < 0)
        ret = plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    if (ret < 0) {
        free(all);
        return -1;
    }
    free(l->sources);
    l->sources = all;
    l->nsources = 0;
    for (i = 0; i < total; i++)
        if (all[i].file >= 0)
            all[l->nsources++] = all[i];
    if (l->nsources > 0)
        qsort(all, l->nsources, sizeof(*all), by_name);
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

/* Without ZeRO the ranks of a data-parallel group hold the same, but for the
 * experts; what the optimizer keeps elsewhere is out of the group's reach. */
static struct plait_comm *replicas_of(const struct plait_model *model,
                                      struct plait_optim *optim)
{
    struct plait_comm *comm = model->par->group[PLAIT_GROUP_DP_CP];
    const struct plait_shards *shards = plait_optim_shards(optim);

    return shards->zero == 0 && shards->state_dev == model->par->dev &&
                   model->config->model.experts == 0 &&
                   plait_comm_size(comm) > 1
               ? comm
               : NULL;
}

/* Of the `n` members of a group, by their ranks in a world of `size`, one
 * that has a file of the piece open already; or any, each in its turn. */
static int reader_of(const struct load *l, const struct plait_piece *want,
                     const int *members, int n, int size)
{
    const struct source *s, *end = l->sources + l->nsources;
    int any = 0, i;

    for (s = find(l, want->name); s < end && !strcmp(s->piece.name, want->name);
         s++) {
        if (!plait_piece_meets(want, &s->piece))
            continue;
        any = s->file % n;
        for (i = 0; i < n; i++)
            if (members[i] == s->file % size)
                return i;
    }
    return any;
}

/* Collective. */
static int choose_readers(struct load *l, struct plait_comm *world,
                          struct plait_error *err)
{
    int rank = plait_comm_rank(world), n = 0, ret = 0, i;
    int *members = NULL;

    if (l->replicas) {
        n = plait_comm_size(l->replicas);
        members = malloc(n * sizeof(*members));
        l->reader = malloc((l->npieces + 1) * sizeof(*l->reader));
        if (!members || !l->reader)
            ret = plait_errorf(err, "%s: out of memory", l->path);
    }
    ret = plait_agree(world, ret, err);
    if (ret == 0 && n > 0 &&
        plait_comm_host_all_gather(l->replicas, &rank, members, sizeof(rank)) <
            0)
        ret =
            plait_errorf(err, "checkpoint: %s", plait_comm_error(l->replicas));
    for (i = 0; ret == 0 && n > 0 && i < l->npieces; i++)
        l->reader[i] =
            reader_of(l, &l->pieces[i], members, n, plait_comm_size(world));
    free(members);
    return ret;
}

static bool reads(const struct load *l, int piece)
{
    return !l->replicas || l->reader[piece] == plait_comm_rank(l->replicas);
}

/* Open the shards that have something of what this rank reads. */
static int open_needed(struct load *l, struct plait_error *err)
{
    const struct source *s, *end = l->sources + l->nsources;
    int i;

    for (i = 0; i < l->npieces; i++) {
        const struct plait_piece *want = &l->pieces[i];

        if (!reads(l, i))
            continue;
        for (s = find(l, want->name);
             s < end && !strcmp(s->piece.name, want->name); s++)
            if (!l->shards[s->file].map && plait_piece_meets(want, &s->piece) &&
                map_shard(l, s->file, err) < 0)
                return -1;
    }
    return 0;
}

/* Collective. */
static int prepare(struct load *l, const struct plait_model *model,
                   struct plait_optim *optim, struct plait_error *err)
{
    struct plait_comm *world = model->par->world;

    l->npieces = plait_pieces_create(optim, &l->pieces, &l->data, err);
    l->replicas = replicas_of(model, optim);
    if (plait_agree(world, l->npieces < 0 ? -1 : 0, err) < 0 ||
        choose_readers(l, world, err) < 0)
        return -1;
    return plait_agree(world, open_needed(l, err), err);
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

static uint64_t copy_source(const struct load *l,
                            const struct plait_piece *piece, float *buffer,
                            const struct source *s)
{
    const char *file = l->shards[s->file].map;

    if (!file) /* not needed */
        return 0;
    return plait_piece_copy(piece, buffer, &s->piece,
                            (const float *)(file + s->offset));
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
        got += copy_source(l, piece, buffer, s);
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
    float *buffer;
    size_t most = 1;
    int i, ret = 0;

    for (i = 0; i < l->npieces; i++)
        if (reads(l, i) && l->pieces[i].count > most)
            most = l->pieces[i].count;
    buffer = malloc(most * sizeof(*buffer));
    if (!buffer)
        return plait_errorf(err, "%s: out of memory", l->path);
    for (i = 0; i < l->npieces && ret == 0; i++) {
        if (!reads(l, i))
            continue;
        ret = fill(l, &l->pieces[i], buffer, err);
        if (ret == 0 &&
            plait_optim_write(optim, l->data[i], buffer,
                              l->pieces[i].count * sizeof(*buffer)) < 0)
            ret = plait_errorf(err, "%s: cannot copy to the device: %s",
                               l->path, strerror(errno));
    }
    free(buffer);
    return ret;
}

/* What each has read, to those who want the same. */
static int send_all(const struct load *l, const struct plait_model *model,
                    struct plait_error *err)
{
    struct plait_parallel *par = model->par;
    int i;

    for (i = 0; l->replicas && i < l->npieces; i++)
        if (plait_comm_broadcast(l->replicas, l->data[i], l->pieces[i].count,
                                 PLAIT_F32, l->reader[i], par->q, NULL) < 0)
            return plait_errorf(err, "checkpoint: %s",
                                plait_comm_error(l->replicas));
    if (par->ops->queue_sync(par->q) < 0)
        return plait_errorf(err, "checkpoint: %s", plait_queue_error(par->q));
    return 0;
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
    free(l->pieces);
    free(l->data);
    free(l->reader);
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
    /* Nothing of the model is touched before all ranks have what they
     * need. */
    ret = read_manifest(&l, world, err);
    if (ret == 0)
        ret = read_shards(&l, world, err);
    if (ret == 0)
        ret = share_sources(&l, world, err);
    if (ret == 0)
        ret = prepare(&l, model, optim, err);
    if (ret < 0 && is_not_whole(errno)) {
        errno = EBADMSG;
    } else if (ret == 0) {
        ret = fill_all(&l, optim, err);
        if (ret == 0)
            ret = check_parameters(&l, model, err);
        ret = plait_agree(world, ret, err);
        if (ret == 0)
            ret = plait_agree(world, send_all(&l, model, err), err);
    }
    if (ret == 0)
        *info = l.manifest.info;
    load_free(&l);
    return ret;
}
