/* SPDX-License-Identifier: Apache-2.0 */
/* Large transfers, which go through shared memory inside a node, one at a time
 * and many at once. Under mpirun or plait run; every rank checks, and rank 0
 * prints. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "all_ok.h"
#include "kernels/dtype.h"
#include "runtime/comm/comm.h"

#define MOST 70001 /* elements of a rank's part */
#define RANKS_MOST 8

static struct plait_comm *world;
static int rank, size;
static float *send, *recv; /* [RANKS_MOST * MOST], of up to 8 bytes */

/* Rank r's element i: small whole numbers, so that sums are exact in every type
 * and order. */
static float value(int r, size_t i)
{
    return (float)((i + 3 * (size_t)r) % 13);
}

static float total(size_t i)
{
    float sum = 0;

    for (int r = 0; r < size; r++)
        sum += value(r, i);
    return sum;
}

static void put(void *buf, size_t i, enum plait_dtype type, float x)
{
    switch (type) {
    case PLAIT_BF16_T:
        ((uint16_t *)buf)[i] = plait_bf16_of_f32(x);
        break;
    case PLAIT_FP16_T:
        ((uint16_t *)buf)[i] = plait_fp16_of_f32(x);
        break;
    case PLAIT_I32:
        ((int32_t *)buf)[i] = (int32_t)x;
        break;
    case PLAIT_F64:
        ((double *)buf)[i] = x;
        break;
    default:
        ((float *)buf)[i] = x;
    }
}

static float get(const void *buf, size_t i, enum plait_dtype type)
{
    switch (type) {
    case PLAIT_BF16_T:
        return plait_f32_of_bf16(((const uint16_t *)buf)[i]);
    case PLAIT_FP16_T:
        return plait_f32_of_fp16(((const uint16_t *)buf)[i]);
    case PLAIT_I32:
        return (float)((const int32_t *)buf)[i];
    case PLAIT_F64:
        return (float)((const double *)buf)[i];
    default:
        return ((const float *)buf)[i];
    }
}

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, NKINDS };

static int begin(enum kind kind, void *from, void *to, size_t n,
                 enum plait_dtype type, struct plait_request **req)
{
    switch (kind) {
    case ALL_REDUCE:
        return plait_comm_all_reduce(
            world, &(struct plait_buffers){from, to, (size_t)size * n, type},
            PLAIT_SUM, NULL, req);
    case REDUCE_SCATTER:
        return plait_comm_reduce_scatter(
            world, &(struct plait_buffers){from, to, n, type}, PLAIT_SUM, NULL,
            req);
    default:
        return plait_comm_all_gather(
            world, &(struct plait_buffers){from, to, n, type}, NULL, req);
    }
}

/* What to[i] must be; n: elements of a rank's part. */
static float want(enum kind kind, size_t i, size_t n)
{
    switch (kind) {
    case ALL_REDUCE:
        return total(i);
    case REDUCE_SCATTER:
        return total((size_t)rank * n + i);
    default:
        return value((int)(i / n), i % n);
    }
}

/* In place or not, with or without a request. */
static int check(enum kind kind, size_t n, enum plait_dtype type, int in_place,
                 int async)
{
    size_t each = plait_dtype_size(type), whole = (size_t)size * n;
    size_t nsend = kind == ALL_GATHER ? n : whole;
    size_t nrecv = kind == REDUCE_SCATTER ? n : whole;
    char *from = (char *)send, *to = in_place ? from : (char *)recv;
    struct plait_request *req = NULL;
    int pass;

    if (in_place && kind == ALL_GATHER)
        from += (size_t)rank * n * each;
    if (in_place && kind == REDUCE_SCATTER)
        to += (size_t)rank * n * each;
    for (size_t i = 0; i < nsend; i++)
        put(from, i, type, value(rank, i));
    pass = begin(kind, from, to, n, type, async ? &req : NULL) == 0 &&
           plait_comm_wait(&req, NULL) == 0;
    for (size_t i = 0; i < nrecv; i++)
        pass &= get(to, i, type) == want(kind, i, n);
    return pass;
}

static void check_kinds(void)
{
    static const char *const names[] = {"all-reduce", "reduce-scatter",
                                        "all-gather"};
    static const size_t sizes[] = {MOST, 8192, 16384 + 7, 65536};

    for (int kind = 0; kind < NKINDS; kind++)
        for (int type = 0; type < PLAIT_NDTYPES; type++) {
            char what[80];
            int pass = 1;

            for (int s = 0; s < 4; s++)
                for (int way = 0; way < 4; way++)
                    pass &= check(kind, sizes[s], type, way & 1, way / 2);
            snprintf(what, sizeof(what), "%s of %s", names[kind],
                     plait_dtype_name(type));
            all_ok(world, pass, what);
        }
}

/* Several transfers at once on two groups, which ranks start in different
 * orders, with small and blocking ones in between; waited for in reverse
 * order. */
static void check_many(void)
{
    enum { EACH = 4, N = 20000 };
    struct plait_request *req[2][EACH];
    struct plait_comm *group[2] = {world, NULL};
    struct plait_error err;
    int pass = plait_comm_split(world,
                                &(struct plait_split){
                                    .color = 0, .key = -rank, .name = "again"},
                                &group[1], &err) == 0;
    float small = 1;

    for (int i = 0; i < 2 * EACH; i++) {
        int g = rank % 2 ? i / EACH : 1 - i / EACH, k = i % EACH;
        float *at = recv + (g * EACH + k) * N;

        for (size_t j = 0; j < N; j++)
            at[j] = value(rank, j) + (float)(g * EACH + k);
        pass &= plait_comm_all_reduce(
                    group[g], &(struct plait_buffers){at, at, N, PLAIT_F32},
                    PLAIT_SUM, NULL, &req[g][k]) == 0;
    }
    pass &= plait_comm_all_reduce(
                world, &(struct plait_buffers){&small, &small, 1, PLAIT_F32},
                PLAIT_SUM, NULL, NULL) == 0 &&
            small == (float)size;
    pass &= check(ALL_REDUCE, 10000, PLAIT_F32, 1, 0);
    for (int i = 2 * EACH - 1; i >= 0; i--) {
        float *at = recv + i * N;

        pass &= plait_comm_wait(&req[i / EACH][i % EACH], NULL) == 0;
        for (size_t j = 0; j < N; j++)
            pass &= at[j] == total(j) + (float)(size * i);
    }
    plait_comm_destroy(group[1]);
    all_ok(world, pass, "many under way on two groups");
}

/* Whether on every rank at least half of `busy` seconds of work was hidden
 * behind the transfer; -1: the transfer failed. */
static int try_beside(double busy)
{
    const struct timespec nap = {.tv_sec = (time_t)busy,
                                 .tv_nsec = (long)(fmod(busy, 1) * 1e9)};
    struct plait_comm_stats before, after;
    struct plait_request *req;
    double late;

    plait_comm_stats(world, &before);
    if (plait_comm_all_reduce(
            world, &(struct plait_buffers){send, recv, MOST, PLAIT_F32},
            PLAIT_SUM, NULL, &req) < 0)
        return -1;
    nanosleep(&nap, NULL);
    if (plait_comm_wait(&req, NULL) < 0)
        return -1;
    plait_comm_stats(world, &after);
    late = !(after.hidden_s > before.hidden_s &&
             after.wait_s - before.wait_s < busy / 2);
    if (plait_comm_host_all_reduce(world, &late, 1, PLAIT_MAX) < 0)
        return -1;
    return late == 0;
}

/* A transfer makes progress while its process makes no calls. On a busy machine
 * several tries may be needed. */
static void check_beside(void)
{
    int hidden = 0;

    for (double busy = 0.3; busy < 6 && hidden == 0; busy *= 2)
        hidden = try_beside(busy);
    all_ok(world, hidden >= 0, "a transfer beside other work");
    all_ok(world, hidden > 0, "it was done before it was waited for");
}

int main(void)
{
    struct plait_launch launch;
    struct plait_error err;

    if (plait_launch_decode(&launch, NULL, NULL, &err) == 1)
        world = plait_comm_create(PLAIT_COMM_SOCKET, NULL, NULL, &launch, &err);
    else
        world = plait_comm_create(PLAIT_COMM_MPI, NULL, NULL, NULL, &err);
    if (!world) {
        ok(0, "create: %s", err.text);
        return done_testing();
    }
    rank = plait_comm_rank(world);
    size = plait_comm_size(world);
    send = calloc(4 * RANKS_MOST * MOST, sizeof(*send));
    if (!send || size > RANKS_MOST)
        return 1;
    recv = send + 2 * RANKS_MOST * MOST;
    check_kinds();
    check_many();
    check_beside();
    free(send);
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
