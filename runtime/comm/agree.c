/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/comm/agree.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"
#include "topology/base/hash.h"

/* What this program was built with. It decides which collectives there are
 * (world_device.c), and how ranks compute. */
#ifdef HAVE_MPI
#define WITH_MPI "MPI yes"
#else
#define WITH_MPI "MPI no"
#endif
#ifdef HAVE_CUDA
#define WITH_CUDA ", CUDA yes"
#else
#define WITH_CUDA ", CUDA no"
#endif
#ifdef HAVE_NCCL
#define WITH_NCCL ", NCCL yes"
#else
#define WITH_NCCL ", NCCL no"
#endif
#ifdef HAVE_CUDNN
#define WITH_CUDNN ", cuDNN yes"
#else
#define WITH_CUDNN ", cuDNN no"
#endif
#define BUILD WITH_MPI WITH_CUDA WITH_NCCL WITH_CUDNN

static const char *next_line(const char *text)
{
    text += strcspn(text, "\n");
    return *text ? text + 1 : text;
}

/* `there`: rank 0's host and, from the next line on, its text. */
static int describe_difference(const struct plait_comm *world, const char *text,
                               const char *there, struct plait_error *err)
{
    const char *other = next_line(there);
    char host[256] = "";
    size_t n, m, key;

    for (; *text && *other; text = next_line(text), other = next_line(other)) {
        n = strcspn(text, "\n");
        m = strcspn(other, "\n");
        if (n == m && memcmp(text, other, n) == 0)
            continue;
        key = strcspn(text, "=");
        gethostname(host, sizeof(host) - 1);
        errno = EINVAL;
        if (key > n || key > m || memcmp(text, other, key + 1) != 0)
            break;
        return plait_errorf(
            err,
            "%.*s is %.*s on rank %d (%s), but %.*s on rank 0 (%.*s): all "
            "ranks must be started alike",
            (int)key, text, (int)(n - key - 1), text + key + 1,
            plait_comm_rank(world), host, (int)(m - key - 1), other + key + 1,
            (int)strcspn(there, "\n"), there);
    }
    return *text || *other
               ? plait_errorf(err,
                              "rank %d (%s) knows other settings than rank 0 "
                              "(%.*s): all ranks must run the same program",
                              plait_comm_rank(world), host,
                              (int)strcspn(there, "\n"), there)
               : 0;
}

static int find_difference(struct plait_comm *world, const char *text,
                           struct plait_error *err)
{
    char host[256] = "", *there = NULL;
    size_t size = 0;
    int rc = 0;

    if (plait_comm_rank(world) == 0) {
        gethostname(host, sizeof(host) - 1);
        if (asprintf(&there, "%s\n%s", host, text) < 0) {
            there = NULL;
            rc = plait_errorf(err, "out of memory");
        }
        size = there ? strlen(there) + 1 : 0;
    }
    if (plait_broadcast_text(world, rc, &there, &size, err) < 0)
        return -1;
    rc = describe_difference(world, text, there, err);
    free(there);
    return plait_error_consensus(world, rc, err);
}

int plait_agree_on_text(struct plait_comm *world, const char *text,
                        struct plait_error *err)
{
    uint64_t mine = text ? plait_hash_text(PLAIT_HASH_START, text) : 0;
    int n = plait_comm_size(world), same = 0;
    uint64_t *all =
        plait_gather_values(world, text ? &mine : NULL, sizeof(mine), err);

    if (!all)
        return -1;
    while (same < n && all[same] == all[0])
        same++;
    free(all);
    return same == n ? 0 : find_difference(world, text, err);
}

/* The program, and what the launch says to all ranks alike, in lines. */
static char *describe_launch(const struct plait_world *w)
{
    const struct plait_launch *l = &w->launch;
    char order[16], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fprintf(out,
            "the version of Plait=" PACKAGE_VERSION
            "\nthe build of Plait=" BUILD
            "\nPLAIT_ELASTIC=%d\nPLAIT_SPARES=%d\n",
            plait_world_elastic(), plait_world_spares());
    if (w->planned) {
        fprintf(out, "PLAIT_WORLD_SIZE=%d\nPLAIT_NNODES=%d\n", l->world_size,
                l->nnodes);
        for (int i = 0; i < PLAIT_NAXES; i++)
            fprintf(out, "PLAIT_%c%c_SIZE=%d\n",
                    toupper(plait_axis_names[i][0]),
                    toupper(plait_axis_names[i][1]), l->layout.size[i]);
        plait_layout_format_order(&l->layout, order);
        fprintf(out, PLAIT_ENV_ORDER "=%s\n", order);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

int plait_agree_on_launch(const struct plait_world *w, struct plait_error *err)
{
    char *text = describe_launch(w);
    int rc = plait_agree_on_text(w->all, text, err);

    free(text);
    return rc;
}

int plait_greatest_count_at(const char *place, struct plait_comm *world,
                            size_t mine, size_t most_of_any, size_t *greatest,
                            struct plait_error *err)
{
    double most = (double)mine;

    if (plait_comm_host_all_reduce_at(place, world, &most, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    /* Not a number is neither. */
    if (!(most >= (double)mine && most <= (double)most_of_any)) {
        errno = EPROTO;
        return plait_errorf(err, "a rank announced a list of %g settings",
                            most);
    }
    *greatest = (size_t)most;
    return 0;
}
