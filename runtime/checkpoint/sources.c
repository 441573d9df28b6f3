/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/copy_image.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"

/* Bytes of each file that the kernel reads ahead while the ranks agree on what
 * they want: as much as most heads have. */
#define FIRST ((uint64_t)1 << 20)
/* More tensors than the files that one rank reads have. */
#define SOURCES_MOST (1 << 24)

int plait_sources_map(struct plait_sources *s, int index,
                      struct plait_error *err)
{
    const struct plait_shard_file *file = &s->manifest.files[index];
    struct plait_mapped_file *shard = &s->files[index];
    char *path = NULL;
    int fd = -1, rc = -1;
    struct stat st;
    void *map;

    if (s->holder) {
        shard->wanted = true;
        return 0;
    }
    if (asprintf(&path, "%s/%s", s->path, file->name) < 0)
        return plait_errorf(err, "%s: out of memory", s->path);
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
    rc = 0;
done:
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

int plait_sources_add(struct plait_sources *s, int index,
                      struct plait_error *err)
{
    const struct plait_mapped_file *shard = &s->files[index];
    struct plait_stored *stored;
    struct plait_source *bigger;
    char *name;
    int n, rc;

    if (asprintf(&name, "%s/%s", s->path, s->manifest.files[index].name) < 0)
        return plait_errorf(err, "%s: out of memory", s->path);
    rc = plait_safetensors_parse(name, shard->map, shard->size, &stored, &n,
                                 err);
    free(name);
    if (rc < 0)
        return -1;
    bigger = realloc(s->sources, (s->nsources + n + 1) * sizeof(*bigger));
    if (!bigger) {
        free(stored);
        return plait_errorf(err, "%s: out of memory", s->path);
    }
    s->sources = bigger;
    for (int i = 0; i < n; i++)
        bigger[s->nsources++] =
            (struct plait_source){stored[i].slice, stored[i].offset, index};
    free(stored);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct plait_source *)a)->slice.name,
                  ((const struct plait_source *)b)->slice.name);
}

static int read_manifest(struct plait_sources *s, struct plait_comm *world,
                         struct plait_error *err)
{
    char *text = NULL;
    size_t size = 0;
    int rc = 0;

    if (plait_comm_rank(world) == 0)
        rc = plait_manifest_text(s->path, &text, &size, err);
    if (plait_broadcast_text(world, rc, &text, &size, err) < 0)
        return -1;
    rc = plait_manifest_parse(s->path, text, size, &s->manifest, err);
    free(text);
    return plait_error_consensus(world, rc, err);
}

/* Have the kernel read ahead in large requests, not in the 128 KB of a page
 * fault. */
static void expect_bytes(const struct plait_mapped_file *shard, uint64_t at,
                         uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)shard->map + at, from = begin / page * page;

    if (at >= shard->size)
        return;
    if (size > shard->size - at)
        size = shard->size - at;
    madvise((void *)from, begin + size - from, MADV_WILLNEED);
}

/* If a head cannot be parsed, check the file: that it is damaged is the better
 * message. */
static int read_head(struct plait_sources *s, int index, bool checked,
                     struct plait_error *err)
{
    struct plait_error why;

    if (plait_sources_add(s, index, err) == 0)
        return 0;
    why = *err;
    if (!checked && errno == EINVAL &&
        plait_sources_check_file(s, index, NULL, err) == 0) {
        *err = why;
        errno = EINVAL;
    }
    return -1;
}

/* Read the heads of this rank's share of the files; with `check`, first all of
 * their bytes, to check the checksums. */
static int read_shards(struct plait_sources *s, struct plait_comm *world,
                       bool check, struct plait_error *err)
{
    int rank = plait_comm_rank(world), size = plait_comm_size(world);
    int rc = 0;

    s->files = calloc(s->manifest.nfiles + 1, sizeof(*s->files));
    if (!s->files)
        rc = plait_errorf(err, "%s: out of memory", s->path);
    for (int i = rank; i < s->manifest.nfiles && rc == 0; i += size) {
        rc = plait_sources_map(s, i, err);
        if (rc == 0)
            expect_bytes(&s->files[i], 0, FIRST);
    }
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    if (check && plait_sources_check(s, world, NULL, err) < 0)
        return -1;
    for (int i = rank; i < s->manifest.nfiles && rc == 0; i += size)
        rc = read_head(s, i, check, err);
    return plait_error_consensus(world, rc, err);
}

/* Whether a source that another rank has read is one that the file can have.
 * Its bounds are those of plait_safetensors_parse(). */
static bool is_sound(const struct plait_sources *s,
                     const struct plait_source *source)
{
    const struct plait_tensor_slice *p = &source->slice;
    uint64_t area, size;

    if (source->file >= s->manifest.nfiles ||
        !memchr(p->name, '\0', sizeof(p->name)))
        return false;
    for (int i = 0; i < 2; i++)
        if (p->shape[i] > PLAIT_SAFETENSORS_MOST ||
            p->begin[i] > PLAIT_SAFETENSORS_MOST)
            return false;
    size = s->manifest.files[source->file].bytes;
    if (s->holder)
        size -= PLAIT_COPY_HEAD;
    return !__builtin_mul_overflow(p->box[0], p->box[1], &area) &&
           area <= PLAIT_SAFETENSORS_MOST && p->count <= area &&
           p->first <= area - p->count && source->offset <= size &&
           p->count <= (size - source->offset) / sizeof(float);
}

/* all[total]: drops those that are none. */
static int check_sources(struct plait_sources *s, size_t total,
                         struct plait_error *err)
{
    s->nsources = 0;
    for (size_t i = 0; i < total; i++) {
        if (s->sources[i].file < 0)
            continue;
        if (!is_sound(s, &s->sources[i])) {
            errno = EINVAL;
            return plait_errorf(err,
                                "%s: a rank announced a read beyond the end "
                                "of a tensor's file",
                                s->path);
        }
        s->sources[s->nsources++] = s->sources[i];
    }
    return 0;
}

/* All ranks learn the sources of all. */
int plait_sources_share(struct plait_sources *s, struct plait_comm *world,
                        struct plait_error *err)
{
    struct plait_source *mine, *all;
    size_t room, total;
    int rc = 0;

    if (plait_greatest_count(world, (size_t)s->nsources, SOURCES_MOST, &room,
                             err) < 0)
        return -1;
    total = room * plait_comm_size(world);
    mine = realloc(s->sources, (room + 1) * sizeof(*mine));
    if (mine)
        s->sources = mine;
    all = malloc((total + 1) * sizeof(*all));
    if (!mine || !all)
        rc = plait_errorf(err, "%s: out of memory", s->path);
    rc = plait_error_consensus(world, rc, err);
    for (size_t i = s->nsources; i < room && rc == 0; i++)
        mine[i] = (struct plait_source){.file = -1};
    if (rc == 0 && room > 0 &&
        plait_comm_host_all_gather(world, mine, all, room * sizeof(*all)) < 0)
        rc = plait_errorf(err, "checkpoint: %s", plait_comm_error(world));
    if (rc < 0) {
        free(all);
        return -1;
    }
    free(s->sources);
    s->sources = all;
    if (check_sources(s, total, err) < 0)
        return -1;
    if (s->nsources > 0)
        qsort(all, s->nsources, sizeof(*all), by_name);
    return 0;
}

/* The first of the sources with this name, or the end. */
const struct plait_source *plait_sources_find(const struct plait_sources *s,
                                              const char *name)
{
    int low = 0, high = s->nsources, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (strcmp(s->sources[middle].slice.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return s->sources + low;
}

static int check_shape(const struct plait_sources *from,
                       const struct plait_tensor_slice *want,
                       const struct plait_tensor_slice *have,
                       struct plait_error *err)
{
    if (want->shape[0] == have->shape[0] && want->shape[1] == have->shape[1])
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: tensor %s is [%" PRIu64 ", %" PRIu64
                        "] there, [%" PRIu64 ", %" PRIu64 "] in this model",
                        from->path, want->name, have->shape[0], have->shape[1],
                        want->shape[0], want->shape[1]);
}

static uint64_t copy_source(const struct plait_sources *from,
                            const struct plait_tensor_slice *slice,
                            float *buffer, const struct plait_source *s)
{
    const char *file = from->files[s->file].map;

    if (!file) /* not needed on this rank */
        return 0;
    if (s->slice.count == slice->count)
        expect_bytes(&from->files[s->file], s->offset,
                     s->slice.count * sizeof(float));
    return plait_tensor_slice_copy(slice, buffer, &s->slice,
                                   (const float *)(file + s->offset));
}

int plait_sources_fill(const struct plait_sources *from,
                       const struct plait_tensor_slice *slice, float *buffer,
                       struct plait_error *err)
{
    const struct plait_source *s = plait_sources_find(from, slice->name);
    const struct plait_source *end = from->sources + from->nsources;
    uint64_t inside = plait_tensor_slice_inside(slice), got = 0;

    errno = EINVAL;
    if (s == end || strcmp(s->slice.name, slice->name) != 0)
        return plait_errorf(err, "%s: tensor %s of this model is missing",
                            from->path, slice->name);
    memset(buffer, 0, slice->count * sizeof(*buffer));
    for (; s < end && !strcmp(s->slice.name, slice->name); s++) {
        if (check_shape(from, slice, &s->slice, err) < 0)
            return -1;
        got += copy_source(from, slice, buffer, s);
    }
    if (got == inside)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: tensor %s: %" PRIu64 " elements for a part of "
                        "%" PRIu64,
                        from->path, slice->name, got, inside);
}

void plait_sources_drop(const struct plait_sources *from, const char *name)
{
    const struct plait_source *s = plait_sources_find(from, name);
    const struct plait_source *end = from->sources + from->nsources;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin, last;

    for (; s < end && !strcmp(s->slice.name, name); s++) {
        if (from->holder || !from->files[s->file].map)
            continue;
        begin = (uintptr_t)from->files[s->file].map + s->offset;
        last = begin + s->slice.count * sizeof(float);
        begin = begin / page * page;
        madvise((void *)begin, last - begin, MADV_DONTNEED);
    }
}

static int open_shards(struct plait_sources *s, const char *path,
                       struct plait_comm *world, bool check,
                       struct plait_error *err)
{
    *s = (struct plait_sources){.path = path};
    if (read_manifest(s, world, err) < 0 ||
        read_shards(s, world, check, err) < 0)
        return -1;
    return plait_sources_share(s, world, err);
}

int plait_sources_open(struct plait_sources *s, const char *path,
                       struct plait_comm *world, struct plait_error *err)
{
    return open_shards(s, path, world, true, err);
}

int plait_sources_open_unchecked(struct plait_sources *s, const char *path,
                                 struct plait_comm *world,
                                 struct plait_error *err)
{
    return open_shards(s, path, world, false, err);
}

void plait_sources_close(struct plait_sources *s)
{
    int saved = errno;

    for (int i = 0; s->files && i < s->manifest.nfiles; i++)
        if (s->holder)
            free(s->files[i].image);
        else if (s->files[i].map)
            munmap(s->files[i].map, s->files[i].size);
    free(s->holder);
    free(s->files);
    free(s->sources);
    free(s->manifest.files);
    errno = saved;
}
