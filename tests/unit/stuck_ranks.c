/* SPDX-License-Identifier: Apache-2.0 */
/* Four ranks that sum in pairs and over all, until rank GUILTY makes the
 * mistake that the argument names. The watchdog must name that rank, or the
 * collective itself. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/comm.h"
#include "runtime/train/watchdog/watchdog.h"

enum { ROUNDS = 20, GUILTY = 2, LIMIT_S = 8, COUNT = 10000 };
/* So many elements that no rank's transfer can end before all ranks take
 * part. */
enum { LARGE = 1 << 20 };

struct ranks {
    struct plait_world world;
    struct plait_comm *tp;
    struct plait_queue *q;
    float *buf;
    const char *what;
};

/* Whether the guilty rank just stays away; "unwatched": without a thread that
 * notes where it is, as if that had no processor. */
static bool is_away(const struct ranks *r)
{
    return !strcmp(r->what, "away") || !strcmp(r->what, "unwatched");
}

/* A sum of the pair: of host values for "kind", as ranks in different host
 * operations are certain to wait for each other. */
static int sum(struct ranks *r)
{
    double value = 1;

    if (!strcmp(r->what, "kind"))
        return plait_comm_host_all_reduce(r->tp, &value, 1, PLAIT_SUM);
    return plait_comm_all_reduce(
        r->tp, &(struct plait_buffers){r->buf, r->buf, COUNT, PLAIT_F32},
        PLAIT_SUM, r->q, NULL);
}

/* A sum over all, in which the guilty rank passes half of the elements, or
 * enters another operation instead. */
static int large_sum(struct ranks *r, bool guilty)
{
    bool half = guilty && !strcmp(r->what, "size");

    if (guilty && !strcmp(r->what, "other"))
        return plait_comm_all_gather(
            r->world.comm,
            &(struct plait_buffers){r->buf, r->buf + LARGE, LARGE, PLAIT_F32},
            r->q, NULL);
    return plait_comm_all_reduce(
        r->world.comm,
        &(struct plait_buffers){r->buf, r->buf, half ? LARGE / 2 : LARGE,
                                PLAIT_F32},
        PLAIT_SUM, r->q, NULL);
}

/* What the guilty rank does in the last round instead of sum(). */
static int do_wrong(struct ranks *r)
{
    if (!strcmp(r->what, "kind"))
        return plait_comm_barrier(r->tp);
    if (!strcmp(r->what, "message"))
        return plait_comm_recv(
            r->tp,
            &(struct plait_buffers){.recv = r->buf, .n = 10, .type = PLAIT_F32},
            1, 0, r->q, NULL);
    if (is_away(r))
        for (;;)
            sleep(1);
    return 0; /* "skip" */
}

static int train(struct ranks *r)
{
    bool large = !strcmp(r->what, "size") || !strcmp(r->what, "other");
    bool guilty = plait_comm_rank(r->world.comm) == GUILTY;
    double value = 1;
    int rc = 0;

    for (int i = 0; rc == 0 && i < ROUNDS; i++) {
        if (i == ROUNDS - 1 && large)
            rc = large_sum(r, guilty);
        else if (i == ROUNDS - 1 && guilty)
            rc = do_wrong(r);
        else
            rc = sum(r);
        if (rc == 0)
            rc =
                plait_comm_host_all_reduce(r->world.comm, &value, 1, PLAIT_MAX);
    }
    return rc;
}

/* As plait-train does, the lowest rank says it: all learn of it. The others
 * wait meanwhile, as plait run ends all ranks once one has ended. */
static void tell_difference(const struct ranks *r)
{
    const char *differ = plait_comm_difference(r->world.comm);

    if (!differ)
        differ = plait_comm_difference(r->tp);
    if (plait_comm_rank(r->world.comm) > 0)
        sleep(LIMIT_S);
    else if (differ)
        fprintf(stderr, "%s: ended\n", differ);
}

int main(int argc, char **argv)
{
    struct ranks r = {.what = argc > 1 ? argv[1] : ""};
    struct plait_watchdog *dog = NULL;
    struct plait_hang *hang;
    struct plait_error err;
    int rank;

    if (plait_world_open(&r.world, "cpu", "auto", &err) < 0 ||
        !(hang = plait_hang_create(&r.world, &err)))
        goto error;
    rank = plait_comm_rank(r.world.comm);
    if (plait_comm_split(r.world.comm,
                         &(struct plait_split){.color = rank / 2,
                                               .key = rank,
                                               .axis = PLAIT_COMM_AXIS_TP,
                                               .name = "tp"},
                         &r.tp, &err) < 0)
        goto error;
    if ((rank != GUILTY || strcmp(r.what, "unwatched")) &&
        !(dog = plait_watchdog_create(r.world.comm, hang, &err)))
        goto error;
    plait_watchdog_limit_steps(dog, is_away(&r) ? LIMIT_S : 0, 1);
    r.q = r.world.ops->queue_create(r.world.dev, 0);
    r.buf = r.world.ops->alloc(r.world.dev, 5 * sizeof(float) * LARGE);
    plait_watchdog_begin(dog, 1);
    if (train(&r) == 0)
        return 0;
    tell_difference(&r);
    return 1;
error:
    fprintf(stderr, "%s\n", err.text);
    return 1;
}
