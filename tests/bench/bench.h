/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_BENCH_BENCH_H
#define PLAIT_TESTS_BENCH_BENCH_H

#include <stdio.h>
#include <sys/types.h>

#include <jansson.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "runtime/train/session.h"
#include "runtime/train/step.h"

/* A training job for all contestants: a gpt2, or a llama if kv_heads are given,
 * with experts or without. */
struct bench_case {
    const char *name;
    int layers, hidden, heads, vocab, seq_len, batch;
    int kv_heads, ffn, experts, top_k;
};

struct bench_samples {
    int count;
    double value[64];
};

double bench_now(void);
void bench_add(struct bench_samples *s, double value);
double bench_median(const struct bench_samples *s);
double bench_least(const struct bench_samples *s);
double bench_most(const struct bench_samples *s);

/* A contestant: a process that prints "ready NAME", then answers "run" with
 * seconds and "memory" with KiB. pid 0: it is missing, and name is the
 * reason. */
struct bench_peer {
    const char *label;
    pid_t pid;
    FILE *to, *from;
    char name[80]; /* or why it is missing */
    int limit_s;   /* time limit of an answer; 0: none */
};

/* Starts a peer. env: "NAME=value" strings for the child, NULL-terminated. */
void bench_peer_start(struct bench_peer *p, const char *label,
                      char *const argv[], const char *const env[]);
/* The answer to one request; NAN if the peer died, which is then missing. */
double bench_peer_ask(struct bench_peer *p, const char *request);
void bench_peer_stop(struct bench_peer *p);
/* Marks a peer as missing that was not asked for. */
void bench_peer_miss(struct bench_peer *p, const char *label, const char *why);

/* After an interrupt nothing more is begun, and what was measured is
 * reported. */
void bench_catch_signals(void);
bool bench_stopped(void);
/* The processor's name in /proc/cpuinfo. */
const char *bench_processor(void);
/* To be called in a child: makes these stdin and stdout, and executes argv. */
_Noreturn void bench_become(int in, int out, char *const argv[],
                            const char *const env[]);

/* Writes random tokens and a configuration for them to files that mkstemps()
 * creates; the caller unlinks both. */
int bench_write_files(char *config, char *tokens, const struct bench_case *c,
                      const char *precision, int micro_batch);
/* Appends text to a configuration. */
int bench_append(const char *path, const char *text);
/* Environment with the best settings of memory for PyTorch and llm.c. */
extern const char *const bench_tuned[];
/* Does what plait-train does before the first step. The caller destroys the
 * session and the trainer, also after a failure. */
int bench_open_trainer(const char *config, struct plait_session *session,
                       struct plait_trainer **trainer, struct plait_error *err);

/* Modes in which this program is a contestant. The trainer takes its threads
 * from OMP_NUM_THREADS. The trainer's matrix products are replayed as it makes
 * them, or by the fastest library on this processor. */
int bench_serve_trainer(const char *config, const char *data); /* unlinks */
int bench_image_worker(void);
int bench_train_worker(const struct bench_case *c, const char *precision,
                       const char *recompute);
int bench_replay_worker(const struct bench_case *c, enum plait_dtype type,
                        int threads, bool library);

/* Steps of whole jobs against peers. */
struct bench_step_options {
    int rounds, threads, seconds; /* seconds: at most, for the rounds of a
                                   * job */
    unsigned cases;               /* bit mask */
    const char *precision;        /* NULL: both */
    const char *recompute;        /* plait's parallel.recompute */
    const char *isa;              /* instruction set of plait */
    const char *python, *torch;   /* torch_peer.py; torch NULL: no peers */
    const char *llmc;             /* NULL: not given */
    bool products;                /* replay the matrix products too */
    const char *results;          /* file with a line for each finished job */
    bool go_on;                   /* skip jobs that are in the results */
};
extern const int bench_ncases;
/* Returns a row for each contestant of each job. */
json_t *bench_steps(const struct bench_step_options *o);
int bench_step_worker(char **argv);
/* Starts as *p the PyTorch that is fastest, compiled or not, with either AdamW.
 * `label` has to stay valid. */
void bench_choose_torch(struct bench_peer *p, const struct bench_case *c,
                        const char *precision,
                        const struct bench_step_options *o);
/* The rows of the job's line in the results; NULL: there is none. */
json_t *bench_find_result(const struct bench_step_options *o, const char *name,
                          const char *precision);
void bench_keep_result(const struct bench_step_options *o, const char *name,
                       const char *precision, json_t *rows);

/* Single operations against the limits of the machine; adds rows to the
 * JSON. */
void bench_ops(json_t *rows, int threads, int rounds);
/* Adds a row for each optimizer's step. */
void bench_optimizers(json_t *rows, int threads, int rounds);

/* A row of the table of jobs with several processes. */
struct bench_row {
    const char *what, *who, *version;
    struct bench_samples s;
    double rate; /* per second, by the median; NAN: none */
    const char *unit;
};

/* Prints the row, with the ratio of its time to `mine`, and appends it to
 * rows. */
void bench_report_row(struct bench_row *r, double mine, json_t *rows);

/* The cost of several processes, against peers; rows for JSON. */
struct bench_comm_options {
    int rounds;
    char *self;                /* this program */
    const char *python, *gloo; /* torch_gloo.py */
    const char *const *mpi_env;
};
json_t *bench_comm(const struct bench_comm_options *o);
int bench_reduce_worker(const char *how, const char *mb);
int bench_start_worker(const char *config);
int bench_bare_worker(void);
int bench_tcp_worker(const char *rank, const char *port);
int bench_pair_worker(const char *config);

/* Steps of an image model against PyTorch's; rows for JSON. */
struct bench_image_options {
    int rounds, threads;
    const char *python, *python_new; /* NULL: not given */
    const char *script;              /* torch_resnet.py */
};
json_t *bench_images(const struct bench_image_options *o);

/* Measures the loader and adds its rows. */
void bench_loader(int rounds, json_t *rows);

/* The least speed of a step relative to PyTorch's, with that instruction set,
 * and the most memory. */
double bench_speed_target(const char *isa, bool bf16);
#define BENCH_MEMORY_TARGET 0.7
/* Compares what all parts have measured, as written to `all`, with the targets;
 * adds rows there. */
void bench_targets(json_t *all);

/* Time and memory of planning; rows for JSON. self: this program's path. */
json_t *bench_planner(const char *self, int rounds);
int bench_plan_worker(const char *ranks, const char *rounds);

#endif
