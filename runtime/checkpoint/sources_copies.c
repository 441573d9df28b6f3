/* SPDX-License-Identifier: Apache-2.0 */
/* plait_sources_open_copies(): copies in the ranks' memory as if they were
 * files. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/copy_image.h"
#include "runtime/checkpoint/sources.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/tags.h"

static void point_to(struct plait_mapped_file *file, char *image, size_t size)
{
    file->map = image + PLAIT_COPY_HEAD;
    file->size = size - PLAIT_COPY_HEAD;
}

/* Which rank has which copy, and its size: sizes[ranks][n], 0: it does not have
 * it. */
static int find_holders(struct plait_sources *s, const uint64_t *sizes,
                        int ranks, struct plait_error *err)
{
    int n = s->manifest.nfiles;

    for (int i = 0; i < n; i++) {
        struct plait_shard_file *file = &s->manifest.files[i];

        s->holder[i] = -1;
        snprintf(file->name, sizeof(file->name), "rank %d", i);
        for (int r = ranks - 1; r >= 0; r--)
            if (sizes[(size_t)r * (size_t)n + (size_t)i] > 0) {
                s->holder[i] = r;
                file->bytes = sizes[(size_t)r * (size_t)n + (size_t)i];
            }
        if (s->holder[i] >= 0 && !plait_copy_image_fits(file->bytes)) {
            errno = EPROTO;
            return plait_errorf(err,
                                "%s: rank %d announced a copy of %llu "
                                "bytes, which cannot be",
                                s->path, s->holder[i],
                                (unsigned long long)file->bytes);
        }
        if (s->holder[i] < 0) {
            errno = EINVAL;
            return plait_errorf(err, "%s: the copy on rank %d is gone", s->path,
                                i);
        }
    }
    return 0;
}

static int list_holders(struct plait_sources *s,
                        const struct plait_copies *copies,
                        struct plait_comm *world, struct plait_error *err)
{
    size_t n = (size_t)copies->ranks, ranks = (size_t)plait_comm_size(world);
    uint64_t *mine = calloc(n, sizeof(*mine));
    uint64_t *all = calloc(n * ranks, sizeof(*all));
    int rc = 0;

    s->manifest.files = calloc(n, sizeof(*s->manifest.files));
    s->files = calloc(n, sizeof(*s->files));
    s->holder = calloc(n, sizeof(*s->holder));
    if (!mine || !all || !s->manifest.files || !s->files || !s->holder)
        rc = plait_errorf(err, "%s: out of memory", s->path);
    else
        s->manifest.nfiles = (int)n;
    rc = plait_error_consensus(world, rc, err);
    for (int i = 0; rc == 0 && i < (int)n; i++) {
        const struct plait_copy *copy = plait_copies_find(copies, i);

        if (copy) {
            mine[i] = copy->size;
            point_to(&s->files[i], copy->image, copy->size);
        }
    }
    if (rc == 0 &&
        plait_comm_host_all_gather(world, mine, all, n * sizeof(*mine)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(world));
    if (rc == 0)
        rc = find_holders(s, all, (int)ranks, err);
    free(mine);
    free(all);
    return rc;
}

/* All take the info of the first image. */
static int share_info(struct plait_sources *s,
                      const struct plait_copies *copies,
                      struct plait_comm *world, struct plait_error *err)
{
    struct plait_copy_head head;

    memset(&head, 0, sizeof(head));
    if (s->holder[0] == plait_comm_rank(world))
        memcpy(&head, plait_copies_find(copies, 0)->image, sizeof(head));
    if (plait_comm_host_broadcast(world, &head.info, sizeof(head.info),
                                  s->holder[0]) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    s->manifest.info = head.info;
    return 0;
}

int plait_sources_open_copies(struct plait_sources *s,
                              const struct plait_copies *copies,
                              struct plait_comm *world, struct plait_error *err)
{
    int rc = 0;

    *s = (struct plait_sources){.path = "copies in memory"};
    if (list_holders(s, copies, world, err) < 0 ||
        share_info(s, copies, world, err) < 0)
        return -1;
    for (int i = 0; i < s->manifest.nfiles && rc == 0; i++)
        if (s->holder[i] == plait_comm_rank(world))
            rc = plait_sources_add(s, i, err);
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    return plait_sources_share(s, world, err);
}

/* -- copies that another rank has ------------------------------------------ */

static int allocate_wanted(struct plait_sources *s, char *wants,
                           struct plait_error *err)
{
    for (int i = 0; i < s->manifest.nfiles; i++) {
        struct plait_mapped_file *file = &s->files[i];

        if (!file->wanted || file->map)
            continue;
        file->image = malloc(s->manifest.files[i].bytes);
        if (!file->image)
            return plait_errorf(err, "%s: out of memory", s->path);
        wants[i] = 1;
    }
    return 0;
}

/* All ranks transfer in the same order. */
static int move_wanted(struct plait_sources *s, const char *wants,
                       struct plait_comm *world, struct plait_queue *q)
{
    int me = plait_comm_rank(world), ranks = plait_comm_size(world);
    struct plait_comm *hosts = plait_comm_of_hosts(world);
    int n = s->manifest.nfiles, rc = 0;

    for (int i = 0; i < n; i++)
        for (int r = 0; rc == 0 && r < ranks; r++) {
            size_t bytes = s->manifest.files[i].bytes;

            if (!wants[(size_t)r * (size_t)n + (size_t)i])
                continue;
            if (me == s->holder[i])
                rc = plait_comm_send(
                    hosts,
                    &(struct plait_buffers){.send = (char *)s->files[i].map -
                                                    PLAIT_COPY_HEAD,
                                            .n = bytes / sizeof(int32_t),
                                            .type = PLAIT_I32},
                    r, PLAIT_TAG_COPY, q, NULL);
            if (me != r)
                continue;
            rc = plait_comm_recv(
                hosts,
                &(struct plait_buffers){.recv = s->files[i].image,
                                        .n = bytes / sizeof(int32_t),
                                        .type = PLAIT_I32},
                s->holder[i], PLAIT_TAG_COPY, q, NULL);
            point_to(&s->files[i], s->files[i].image, bytes);
        }
    return rc;
}

int plait_sources_fetch(struct plait_sources *s, struct plait_comm *world,
                        struct plait_queue *q, struct plait_error *err)
{
    size_t n = (size_t)s->manifest.nfiles;
    char *mine, *all;
    int rc = 0;

    if (!s->holder)
        return 0;
    mine = calloc(n, 1);
    all = calloc(n * (size_t)plait_comm_size(world), 1);
    if (!mine || !all)
        rc = plait_errorf(err, "%s: out of memory", s->path);
    else
        rc = allocate_wanted(s, mine, err);
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0 && (plait_comm_host_all_gather(world, mine, all, n) < 0 ||
                    move_wanted(s, all, world, q) < 0))
        rc = plait_errorf(err, "%s", plait_comm_error(world));
    free(mine);
    free(all);
    return rc;
}
