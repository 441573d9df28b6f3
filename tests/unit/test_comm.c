/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "all_ok.h"
#include "kernels/dtype.h"
#include "runtime/comm/comm.h"

/* In one process: the self communicator. Under mpirun (comm-mpi.sh): MPI. Under
 * plait run (comm-socket.sh): sockets. Every rank checks, and rank 0 prints the
 * result of all. */

#define N 1000
#define RANKS_MOST 8

static struct plait_comm *world;
static int rank, size;

static void check_reduce(void)
{
    float a[N], b[N];
    struct plait_request *req;
    int i, pass = 1;

    for (i = 0; i < N; i++)
        a[i] = i + rank;
    pass &= plait_comm_all_reduce(world,
                                  &(struct plait_buffers){a, b, N, PLAIT_F32},
                                  PLAIT_SUM, NULL, NULL) == 0;
    for (i = 0; i < N; i++)
        pass &= b[i] == i * size + size * (size - 1) / 2;
    all_ok(world, pass, "all-reduce, sum");
    pass = plait_comm_all_reduce(world,
                                 &(struct plait_buffers){a, a, N, PLAIT_F32},
                                 PLAIT_MAX, NULL, &req) == 0;
    pass &= plait_comm_wait(&req, NULL) == 0 && !req;
    for (i = 0; i < N; i++)
        pass &= a[i] == i + size - 1;
    all_ok(world, pass, "all-reduce, max, in place, with a request");
}

/* Sizes that go through shared memory in one, two and three chunks and in one
 * and a part, repeatedly. */
static void check_large(void)
{
    static float a[200000], b[200000];
    static const size_t sizes[] = {20000, 131072, 65536, 196625, 65537};
    struct plait_request *req = NULL;
    size_t i;
    int k, pass = 1;

    for (k = 0; k < 25; k++) {
        size_t n = sizes[k % 5];

        for (i = 0; i < n; i++)
            a[i] = (i + k) % 1000 + rank;
        pass &=
            plait_comm_all_reduce(
                world, &(struct plait_buffers){a, k % 2 ? a : b, n, PLAIT_F32},
                k % 3 ? PLAIT_SUM : PLAIT_MAX, NULL, k % 2 ? &req : NULL) == 0;
        pass &= plait_comm_wait(&req, NULL) == 0;
        for (i = 0; i < n; i++) {
            float x = (i + k) % 1000;
            float want =
                k % 3 ? x * size + size * (size - 1) / 2 : x + size - 1;

            pass &= (k % 2 ? a : b)[i] == want;
        }
    }
    all_ok(world, pass, "large all-reduces, one after another");
}

static void check_half(enum plait_dtype type)
{
    float (*to)(uint16_t) =
        type == PLAIT_BF16_T ? plait_f32_of_bf16 : plait_f32_of_fp16;
    uint16_t (*from)(float) =
        type == PLAIT_BF16_T ? plait_bf16_of_f32 : plait_fp16_of_f32;
    uint16_t a[N], b[N];
    int i, pass = 1;

    for (i = 0; i < N; i++)
        a[i] = from((i % 100) / 8.0f + rank);
    pass &= plait_comm_all_reduce(world, &(struct plait_buffers){a, b, N, type},
                                  PLAIT_SUM, NULL, NULL) == 0;
    for (i = 0; i < N; i++) {
        float want = (i % 100) / 8.0f * size + size * (size - 1) / 2;
        float tol = want * size * (type == PLAIT_BF16_T ? 0x1p-8 : 0x1p-11);

        pass &= fabsf(to(b[i]) - want) <= tol;
    }
    all_ok(world, pass, type == PLAIT_BF16_T ? "sum of bf16" : "sum of fp16");
    pass = plait_comm_all_reduce(world, &(struct plait_buffers){a, b, N, type},
                                 PLAIT_MAX, NULL, NULL) == 0;
    for (i = 0; i < N; i++)
        pass &= b[i] == from((i % 100) / 8.0f + size - 1);
    all_ok(world, pass, type == PLAIT_BF16_T ? "max of bf16" : "max of fp16");
}

static void check_scatter_gather(void)
{
    static float a[RANKS_MOST * N], b[RANKS_MOST * N];
    struct plait_request *req;
    float *mine = a + rank * N;
    int i, pass = 1;

    for (i = 0; i < size * N; i++)
        a[i] = i + rank;
    pass &= plait_comm_reduce_scatter(
                world, &(struct plait_buffers){a, mine, N, PLAIT_F32},
                PLAIT_SUM, NULL, &req) == 0;
    pass &= plait_comm_wait(&req, NULL) == 0;
    for (i = 0; i < N; i++)
        pass &= mine[i] == (rank * N + i) * size + size * (size - 1) / 2;
    all_ok(world, pass, "reduce-scatter in place");
    pass = plait_comm_all_gather(world,
                                 &(struct plait_buffers){mine, b, N, PLAIT_F32},
                                 NULL, NULL) == 0;
    for (i = 0; i < size * N; i++)
        pass &= b[i] == i * size + size * (size - 1) / 2;
    all_ok(world, pass, "all-gather");
    pass = plait_comm_all_gather(world,
                                 &(struct plait_buffers){mine, a, N, PLAIT_F32},
                                 NULL, NULL) == 0;
    all_ok(world, pass && !memcmp(a, b, size * N * sizeof(*a)),
           "all-gather in place");
}

static void check_exchange(void)
{
    int32_t a[3], b[3];
    struct plait_request *out = NULL, *in = NULL;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    int i, pass;

    for (i = 0; i < 3; i++)
        a[i] = rank * 100 + i;
    memset(b, rank == size - 1 ? 7 : 0, sizeof(b));
    pass =
        plait_comm_broadcast(world, &(struct plait_buffers){b, b, 3, PLAIT_I32},
                             size - 1, NULL, NULL) == 0;
    all_ok(world, pass && b[0] == 0x07070707 && b[2] == b[0], "broadcast");
    if (size == 1)
        return;
    pass = plait_comm_recv(
               world,
               &(struct plait_buffers){.recv = b, .n = 3, .type = PLAIT_I32},
               prev, 5, NULL, &in) == 0;
    pass &= plait_comm_send(
                world,
                &(struct plait_buffers){.send = a, .n = 3, .type = PLAIT_I32},
                next, 5, NULL, &out) == 0;
    pass &= plait_comm_progress(world) == 0;
    pass &= plait_comm_wait(&in, NULL) == 0;
    pass &= plait_comm_wait(&out, NULL) == 0;
    all_ok(world, pass && b[2] == prev * 100 + 2, "send and receive");
    if (rank < 2)
        pass = rank == 0
                   ? plait_comm_send(world,
                                     &(struct plait_buffers){
                                         .send = a, .n = 1, .type = PLAIT_I32},
                                     1, 5, NULL, NULL) == 0
                   : plait_comm_recv(world,
                                     &(struct plait_buffers){
                                         .recv = b, .n = 1, .type = PLAIT_I32},
                                     0, 5, NULL, NULL) == 0;
    all_ok(world, pass, "a message of two ranks alone");
}

static void check_host(void)
{
    double v[2] = {rank, 1};
    char text[8] = "", all[RANKS_MOST];
    char me = 'a' + rank;
    int pass;

    pass = plait_comm_host_all_reduce(world, v, 2, PLAIT_SUM) == 0;
    all_ok(world, pass && v[0] == size * (size - 1) / 2 && v[1] == size,
           "host all-reduce");
    if (rank == size - 1)
        strcpy(text, "hello");
    pass = plait_comm_host_broadcast(world, text, sizeof(text), size - 1) == 0;
    all_ok(world, pass && !strcmp(text, "hello"), "host broadcast");
    pass = plait_comm_host_all_gather(world, &me, all, 1) == 0;
    all_ok(world, pass && !memcmp(all, "abcdefgh", size), "host all-gather");
    all_ok(world, plait_comm_barrier(world) == 0, "barrier");
}

static void check_split(void)
{
    struct plait_comm *half = NULL, *one = NULL;
    struct plait_error err;
    float x = rank;
    int pass;

    /* even and odd ranks, each in reverse order */
    pass =
        plait_comm_split(world,
                         &(struct plait_split){
                             .color = rank % 2, .key = -rank, .name = "half"},
                         &half, &err) == 0;
    pass &= half && plait_comm_size(half) == (size + 1 - rank % 2) / 2;
    pass &=
        half && plait_comm_rank(half) == plait_comm_size(half) - 1 - rank / 2;
    all_ok(world, pass, "split in two, by key");
    pass = half && plait_comm_all_reduce(
                       half, &(struct plait_buffers){&x, &x, 1, PLAIT_F32},
                       PLAIT_MAX, NULL, NULL) == 0;
    all_ok(world, pass && x == rank % 2 + 2 * (plait_comm_size(half) - 1),
           "the halves do not meet");
    pass =
        plait_comm_split(world,
                         &(struct plait_split){
                             .color = rank ? -1 : 3, .key = 0, .name = "one"},
                         &one, &err) == 0;
    all_ok(world, pass && !one == !!rank, "color < 0 gets none");
    all_ok(world, !one || plait_comm_size(one) == 1, "a group of one");
    plait_comm_destroy(one);
    plait_comm_destroy(half);
}

static void check_stats(void)
{
    static float a[RANKS_MOST * N], b[RANKS_MOST * N];
    struct plait_comm_stats s0, s1, s2, s3;
    uint64_t S = (uint64_t)size * N * 4;

    plait_comm_stats(world, &s0);
    plait_comm_all_reduce(world,
                          &(struct plait_buffers){a, b, size * N, PLAIT_F32},
                          PLAIT_SUM, NULL, NULL);
    plait_comm_stats(world, &s1);
    plait_comm_reduce_scatter(world,
                              &(struct plait_buffers){a, b, N, PLAIT_F32},
                              PLAIT_SUM, NULL, NULL);
    plait_comm_stats(world, &s2);
    plait_comm_broadcast(world, &(struct plait_buffers){a, a, N, PLAIT_F32}, 0,
                         NULL, NULL);
    plait_comm_stats(world, &s3);
    all_ok(world,
           s1.bytes - s0.bytes == 2 * S * (size - 1) / size &&
               s1.calls == s0.calls + 1,
           "all-reduce counts 2 (n-1)/n S");
    all_ok(world, s2.bytes - s1.bytes == S * (size - 1) / size,
           "reduce-scatter counts (n-1)/n S");
    all_ok(world, s3.bytes - s2.bytes == (size > 1 ? N * 4 : 0),
           "broadcast counts S");
}

static void check_halves_alone(void)
{
    int i, pass = 1;

    for (i = 0; i < 65536; i++) {
        float x = plait_f32_of_fp16(i), y = plait_f32_of_bf16(i);

        pass &= x != x || plait_fp16_of_f32(x) == i;
        pass &= y != y || plait_bf16_of_f32(y) == i;
    }
    ok(pass, "every bf16 and fp16 number survives float and back");
    ok(plait_fp16_of_f32(65519.0f) == 0x7bff &&
           plait_fp16_of_f32(65520.0f) == 0x7c00 &&
           plait_fp16_of_f32(NAN) == 0x7e00,
       "fp16: largest number, infinity, NaN");
    ok(plait_fp16_of_f32(1.0f + 0x1p-11f) == 0x3c00 &&
           plait_fp16_of_f32(1.0f + 0x1.8p-10f) == 0x3c02,
       "fp16: ties go to even");
    ok(plait_fp16_of_f32(0x1p-25f) == 0 && plait_fp16_of_f32(0x1.8p-24f) == 2,
       "fp16: subnormal ties go to even");
}

static void check_refusals(void)
{
    struct plait_launch launch = {.world_size = 64, .rank = 0};
    struct plait_error err = {""};
    float x;
    int rc;

    ok(!plait_comm_create(PLAIT_COMM_SELF, NULL, NULL, &launch, &err) &&
           strstr(err.text, "64 ranks"),
       "self refuses 64 ranks: %s", err.text);
    rc = plait_comm_send(
        world, &(struct plait_buffers){.send = &x, .n = 1, .type = PLAIT_F32},
        1, 0, NULL, NULL);
    ok(rc < 0 && errno == EIO, "no peer: %s", plait_comm_error(world));
    ok(plait_comm_barrier(world) < 0, "what failed stays failed");
}

int main(int argc, char **argv)
{
    enum plait_comm_kind kind = PLAIT_COMM_SELF;
    struct plait_launch launch, *planned = NULL;
    struct plait_error err;

    if (argc > 1 && !strcmp(argv[1], "mpi"))
        kind = PLAIT_COMM_MPI;
    if (argc > 1 && !strcmp(argv[1], "socket")) {
        kind = PLAIT_COMM_SOCKET;
        if (plait_launch_decode(&launch, NULL, NULL, &err) == 1)
            planned = &launch;
    }
    world = plait_comm_create(kind, NULL, NULL, planned, &err);
    if (!world) {
        ok(0, "create: %s", err.text);
        return done_testing();
    }
    rank = plait_comm_rank(world);
    size = plait_comm_size(world);
    check_reduce();
    check_large();
    check_half(PLAIT_BF16_T);
    check_half(PLAIT_FP16_T);
    check_scatter_gather();
    check_exchange();
    check_host();
    check_split();
    check_stats();
    if (kind == PLAIT_COMM_SELF) {
        check_halves_alone();
        check_refusals();
    }
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
