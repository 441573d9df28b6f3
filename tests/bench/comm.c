/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of several processes: all-reduce, start-up, two processes against
 * one, and the loader. Contestants of two processes are started by mpirun; rank
 * 0 answers the driver. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif

#include "bench.h"
#include "runtime/comm/backend.h"
#include "runtime/train/session.h"

enum { PEERS_MOST = 3 };

static char *const pair[] = {
    "mpirun", "--allow-run-as-root", "-np", "2", "--bind-to",
    "core",   "--oversubscribe",     NULL};

/* Puts argv of `command` under mpirun into an array of 24. */
static void under_mpirun(char **argv, char *const command[])
{
    int n = 0;

    for (int i = 0; pair[i] != NULL; i++)
        argv[n++] = pair[i];
    for (int i = 0; command[i] != NULL; i++)
        argv[n++] = command[i];
    argv[n] = NULL;
}

/* -- all-reduce ---------------------------------------------------------- */

#ifdef HAVE_MPI
/* Rank 0 reads the driver's next request; false at the end. Meanwhile the other
 * ranks sleep, as a waiting contestant must not use cores. */
static int next_request(int rank)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    char line[64] = "";
    MPI_Request req;
    int done = 0;

    if (rank == 0 && fgets(line, sizeof(line), stdin) == NULL)
        line[0] = '\0';
    MPI_Ibcast(line, sizeof(line), MPI_CHAR, 0, MPI_COMM_WORLD, &req);
    for (;;) {
        MPI_Test(&req, &done, MPI_STATUS_IGNORE);
        if (done)
            return line[0] != '\0';
        nanosleep(&nap, NULL);
    }
}

/* One all-reduce, or several if one is too short to time; on every rank. */
static double reduce_once(struct plait_comm *world, float *a, size_t n,
                          int plain)
{
    int times = n < 1000000 ? 20 : 1;
    double start;

    plait_comm_barrier(world);
    start = bench_now();
    for (int i = 0; i < times; i++)
        if (plain)
            MPI_Allreduce(MPI_IN_PLACE, a, (int)n, MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        else
            plait_comm_all_reduce(world,
                                  &(struct plait_buffers){a, a, n, PLAIT_F32},
                                  PLAIT_SUM, NULL, NULL);
    return (bench_now() - start) / times;
}

int bench_reduce_worker(const char *how, const char *mb)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 1);
    size_t n = (size_t)(atof(mb) * 1e6 / sizeof(float));
    float *a = ops->alloc(dev, n * sizeof(*a));
    int plain = strcmp(how, "mpi") == 0;
    struct plait_error err = {{0}};
    struct plait_comm *world;

    world = plait_comm_create(PLAIT_COMM_MPI, ops, dev, NULL, &err);
    if (a == NULL || world == NULL)
        return 1;
    if (plait_comm_rank(world) == 0)
        printf("ready %s\n", plain ? "MPI" : "plait");
    fflush(stdout);
    while (next_request(plait_comm_rank(world))) {
        double seconds = reduce_once(world, a, n, plain);

        if (plait_comm_rank(world) == 0)
            printf("%.9f\n", seconds);
        fflush(stdout);
    }
    plait_comm_destroy(world);
    return 0;
}
#endif

static void bench_reduce(const struct bench_comm_options *o, json_t *rows)
{
    static const char *const sizes[] = {"1", "25", "100"};

    for (int i = 0; i < 3; i++) {
        static char what[40];
        char *self[] = {o->self, "--reduce-worker", "plait", (char *)sizes[i],
                        NULL};
        char *mpi[] = {o->self, "--reduce-worker", "mpi", (char *)sizes[i],
                       NULL};
        char *torch[] = {(char *)o->python, (char *)o->gloo, "reduce",
                         (char *)sizes[i], NULL};
        char *argv[24];
        struct bench_peer p[PEERS_MOST];
        struct bench_row r[PEERS_MOST] = {{0}};

        snprintf(what, sizeof(what), "all-reduce %s MB, 2 processes", sizes[i]);
        under_mpirun(argv, self);
        bench_peer_start(&p[0], "plait", argv, o->mpi_env);
        under_mpirun(argv, mpi);
        bench_peer_start(&p[1], "MPI_Allreduce", argv, o->mpi_env);
        bench_peer_start(&p[2], "PyTorch, gloo", torch, NULL);
        for (int round = -2; round < o->rounds; round++)
            for (int k = 0; k < PEERS_MOST; k++) {
                double seconds = bench_peer_ask(&p[k], "run");

                if (round >= 0 && isfinite(seconds))
                    bench_add(&r[k].s, seconds);
            }
        for (int k = 0; k < PEERS_MOST; k++) {
            r[k].what = what;
            r[k].who = p[k].label;
            r[k].version = p[k].name;
            r[k].rate = atof(sizes[i]) * 1e-3 / bench_median(&r[k].s);
            r[k].unit = "GB/s";
            bench_report_row(&r[k], bench_median(&r[0].s), rows);
            bench_peer_stop(&p[k]);
        }
    }
}

/* -- start-up ------------------------------------------------------------ */

static void say(const char *what)
{
    printf("%s %.6f\n", what, bench_now());
    fflush(stdout);
}

/* From main() to the end of the first step, as in plait-train. */
int bench_start_worker(const char *config)
{
    struct plait_session session = {0};
    struct plait_step_result result;
    struct plait_trainer *trainer = NULL;
    struct plait_error err = {{0}};
    int rc = bench_open_trainer(config, &session, &trainer, &err);

    if (rc == 0 && plait_comm_rank(session.world.comm) == 0)
        say("collective"); /* several have been made by now */
    if (rc == 0)
        rc = plait_trainer_step(trainer, 0, 0, &result, &err);
    if (rc == 0 && plait_comm_rank(session.world.comm) == 0)
        say("step");
    if (rc < 0)
        fprintf(stderr, "plait-bench: %s\n", err.text);
    plait_trainer_destroy(trainer);
    plait_session_close(&session);
    return rc == 0 ? 0 : 1;
}

#ifdef HAVE_MPI
int bench_bare_worker(void)
{
    float x = 1;
    int rank;

    MPI_Init(NULL, NULL);
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        say("collective");
    MPI_Finalize();
    return 0;
}
#endif

/* The launch contract's own rendezvous, without MPI: rank `text` of two. */
int bench_tcp_worker(const char *text, const char *port)
{
    struct plait_launch l = {
        .rank = atoi(text), .world_size = 2, .master_port = atoi(port)};
    struct plait_error err = {{0}};
    struct plait_comm *world;
    double x = 1;

    strcpy(l.master_addr, "localhost");
    world = plait_tcp_create(&l, 30, &err);
    if (world == NULL ||
        plait_comm_host_all_reduce(world, &x, 1, PLAIT_SUM) < 0) {
        fprintf(stderr, "plait-bench: %s\n", err.text);
        return 1;
    }
    if (l.rank == 0)
        say("collective");
    plait_comm_destroy(world);
    return 0;
}

/* Measures the seconds until the program says that it has done each of
 * what[]. */
static void time_start(char *const argv[], const char *const env[],
                       const char *const what[2], struct bench_samples s[2])
{
    double start = bench_now(), at;
    char line[128], word[32];
    int out[2];
    pid_t pid;
    FILE *from;

    if (pipe(out) < 0)
        return;
    pid = fork();
    if (pid == 0)
        bench_become(open("/dev/null", O_RDONLY), out[1], argv, env);
    close(out[1]);
    from = fdopen(out[0], "r");
    while (fgets(line, sizeof(line), from) != NULL)
        for (int i = 0; i < 2; i++)
            if (what[i] != NULL && sscanf(line, "%31s %lf", word, &at) == 2 &&
                strcmp(word, what[i]) == 0)
                bench_add(&s[i], at - start);
    fclose(from);
    waitpid(pid, NULL, 0);
}

static void bench_start(const struct bench_comm_options *o, json_t *rows)
{
    static const struct bench_case small = {
        "GPT 2 x 128, 4 x 64", 2, 128, 4, 257, 64, 4, 0, 0, 0, 0};
    static const char *const what[2] = {"collective", "step"};
    static const char *const said[2] = {"start to the first collective, 2 "
                                        "processes",
                                        "start to the end of the first step, "
                                        "2 processes"};
    static const char *const who[4] = {
        "plait under mpirun", "plait's own rendezvous",
        "MPI_Init and MPI_Allreduce", "PyTorch, gloo (DDP)"};
    char config[] = "/tmp/plait-bench-XXXXXX.yaml";
    char tokens[] = "/tmp/plait-bench-XXXXXX.bin", tcp[200], *argv[24];
    char *self[] = {o->self, "--start-worker", config, NULL};
    char *bare[] = {o->self, "--bare-worker", NULL};
    char *sh[] = {"/bin/sh", "-c", tcp, NULL};
    char *torch[] = {(char *)o->python, (char *)o->gloo, "start", NULL};
    struct bench_samples s[4][2] = {{{0}}};
    int port = 20000 + (int)getpid() % 10000;

    if (bench_write_files(config, tokens, &small, "fp32", 2) < 0)
        return;
    for (int round = 0; round < o->rounds; round++) {
        under_mpirun(argv, self);
        time_start(argv, o->mpi_env, what, s[0]);
        snprintf(tcp, sizeof(tcp),
                 "/proc/%d/exe --tcp-worker 0 %d & "
                 "exec /proc/%d/exe --tcp-worker 1 %d",
                 (int)getpid(), port + round, (int)getpid(), port + round);
        time_start(sh, NULL, what, s[1]);
        under_mpirun(argv, bare);
        time_start(argv, NULL, what, s[2]);
        time_start(torch, NULL, what, s[3]);
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            struct bench_row r = {said[i], who[k], "missing",
                                  s[k][i], NAN,    NULL};

            if (i == 0 || k == 0 || k == 3)
                bench_report_row(&r, bench_median(&s[0][i]), rows);
        }
    unlink(config);
    unlink(tokens);
}

/* -- two processes ------------------------------------------------------- */

#ifdef HAVE_MPI
/* A trainer of several processes: rank 0 answers for all. */
int bench_pair_worker(const char *config)
{
    struct plait_session session = {0};
    struct plait_step_result result;
    struct plait_trainer *trainer = NULL;
    struct plait_error err = {{0}};
    int rc, rank, ready;

    rc = bench_open_trainer(config, &session, &trainer, &err);
    MPI_Initialized(&ready);
    if (!ready) /* a single process */
        MPI_Init(NULL, NULL);
    rank = rc == 0 ? plait_comm_rank(session.world.comm) : 0;
    if (rc == 0 && rank == 0)
        printf("ready plait\n");
    fflush(stdout);
    for (int64_t step = 0; rc == 0 && next_request(rank); step++) {
        double start = bench_now();

        rc = plait_trainer_step(trainer, step, 0, &result, &err);
        if (rank == 0)
            printf("%.9f\n", bench_now() - start);
        fflush(stdout);
    }
    if (rc < 0)
        fprintf(stderr, "plait-bench: %s\n", err.text);
    plait_trainer_destroy(trainer);
    plait_session_close(&session);
    if (!ready)
        MPI_Finalize();
    return rc == 0 ? 0 : 1;
}
#endif

/* With ZeRO 1 each process updates half of the weights, without it all of
 * them. */
enum { PAIR, PAIR_ZERO, PAIR_NAIVE, PAIR_FLAT, ALONE, PAIR_PEERS };

static void start_pair(const char *config, const char *label,
                       const struct bench_comm_options *o,
                       struct bench_peer *peer)
{
    char *self[] = {o->self, "--pair-worker", (char *)config, NULL};
    char *argv[24];

    under_mpirun(argv, self);
    bench_peer_start(peer, label, argv, o->mpi_env);
}

static void bench_pair(const struct bench_case *c, const char *precision,
                       const struct bench_comm_options *o, json_t *rows)
{
    char config[PAIR_PEERS][40], tokens[PAIR_PEERS][40], what[100];
    char *alone[] = {o->self, "--pair-worker", config[ALONE], NULL};
    const char *const threads[] = {"OMP_NUM_THREADS=2", NULL};
    struct bench_peer p[PAIR_PEERS];
    struct bench_row r[PAIR_PEERS] = {{0}};

    for (int k = 0; k < PAIR_PEERS; k++) {
        strcpy(config[k], "/tmp/plait-bench-XXXXXX.yaml");
        strcpy(tokens[k], "/tmp/plait-bench-XXXXXX.bin");
        if (bench_write_files(config[k], tokens[k], c, precision,
                              k == ALONE ? c->batch : c->batch / 2) < 0)
            return;
    }
    if (bench_append(config[PAIR_ZERO], "parallel: {zero: 1}\n") < 0 ||
        bench_append(config[PAIR_NAIVE], "parallel: {grad_sync: naive}\n") <
            0 ||
        bench_append(config[PAIR_FLAT], "parallel: {grad_sync: flat}\n") < 0)
        return;
    snprintf(what, sizeof(what), "%s, %s", c->name, precision);
    start_pair(config[PAIR], "two processes", o, &p[PAIR]);
    start_pair(config[PAIR_ZERO], "two processes, ZeRO 1", o, &p[PAIR_ZERO]);
    start_pair(config[PAIR_NAIVE], "two processes, naive sum", o,
               &p[PAIR_NAIVE]);
    start_pair(config[PAIR_FLAT], "two processes, flat sum", o, &p[PAIR_FLAT]);
    bench_peer_start(&p[ALONE], "one process, 2 threads", alone, threads);
    for (int round = -1; round < o->rounds; round++)
        for (int k = 0; k < PAIR_PEERS; k++) {
            double seconds = bench_peer_ask(&p[k], "run");

            if (round >= 0 && isfinite(seconds))
                bench_add(&r[k].s, seconds);
        }
    for (int k = 0; k < PAIR_PEERS; k++) {
        r[k].what = what;
        r[k].who = p[k].label;
        r[k].version = p[k].name;
        r[k].rate = c->batch * c->seq_len / bench_median(&r[k].s);
        r[k].unit = "tokens/s";
        bench_report_row(&r[k], bench_median(&r[PAIR].s), rows);
        bench_peer_stop(&p[k]);
        unlink(config[k]);
        unlink(tokens[k]);
    }
}

/* -- all ----------------------------------------------------------------- */

json_t *bench_comm(const struct bench_comm_options *o)
{
    static const struct bench_case gpt2 = {
        "GPT-2 124M, 2 + 2 x 256", 12, 768, 12, 50304, 256, 4, 0, 0, 0, 0};
    static const struct bench_case small = {
        "GPT 6 x 384, 6 + 6 x 256", 6, 384, 12, 65, 256, 12, 0, 0, 0, 0};
    json_t *rows = json_array();

    printf("\nGB/s of an all-reduce: the bytes of one process's buffer over "
           "the time.\n\n| what | who | ms | least | most | rate | | time "
           "over the first row's |\n|---|---|---|---|---|---|---|---|\n");
    bench_reduce(o, rows);
    bench_start(o, rows);
    bench_pair(&small, "fp32", o, rows);
    bench_pair(&gpt2, "fp32", o, rows);
    bench_loader(o->rounds, rows);
    return rows;
}
