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

/* One training job that everybody runs: a gpt2, or a llama where kv_heads are
 * given, with experts or without. */
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
 * seconds and "memory" with KiB. pid 0: missing, and why. */
struct bench_peer {
    const char *label;
    pid_t pid;
    FILE *to, *from;
    char name[80]; /* or why it is missing */
    int limit_s;   /* of an answer; 0: none */
};

/* `env`: "NAME=value" strings set in the child alone, NULL-terminated. */
void bench_peer_start(struct bench_peer *p, const char *label,
                      char *const argv[], const char *const env[]);
/* The answer to one request; NAN, and the peer is missing, if it died. */
double bench_peer_ask(struct bench_peer *p, const char *request);
void bench_peer_stop(struct bench_peer *p);
/* A peer that was not asked for is named, never guessed. */
void bench_peer_miss(struct bench_peer *p, const char *label, const char *why);

/* After an interrupt what is measured is still reported; nothing is begun. */
void bench_catch_signals(void);
bool bench_stopped(void);
/* As /proc/cpuinfo names it. */
const char *bench_processor(void);
/* In a child: take these as stdin and stdout and run argv. */
_Noreturn void bench_become(int in, int out, char *const argv[],
                            const char *const env[]);

/* Random tokens and a configuration for them, at paths that mkstemps()
 * takes; the caller unlinks both. */
int bench_write_files(char *config, char *tokens, const struct bench_case *c,
                      const char *precision, int micro_batch);
/* What is best for PyTorch's and llm.c's memory, in their environment. */
extern const char *const bench_tuned[];
/* As plait-train goes, up to the first step. What was made stays for the
 * caller to destroy. */
int bench_open_trainer(const char *config, struct plait_session *session,
                       struct plait_trainer **trainer, struct plait_error *err);

/* Modes of this program that are contestants themselves. The trainer takes
 * its threads from OMP_NUM_THREADS. Its matrix products are replayed as the
 * trainer makes them, or by the library that is best on this processor. */
int bench_serve_trainer(const char *config, const char *data); /* unlinks */
int bench_image_worker(void);
int bench_train_worker(const struct bench_case *c, const char *precision);
int bench_replay_worker(const struct bench_case *c, enum plait_dtype type,
                        int threads, bool library);

/* Steps of whole jobs against peers. */
struct bench_step_options {
    int rounds, threads, seconds; /* seconds: of a job's rounds, at most */
    unsigned cases;               /* a bit for each */
    const char *precision;        /* NULL: both */
    const char *isa;              /* of plait */
    const char *python, *torch;   /* torch_peer.py; torch NULL: no peers */
    const char *llmc;             /* NULL: not given */
    bool products;                /* replay the matrix products too */
    const char *results;          /* a line for each job that is done */
    bool go_on;                   /* what it has is not measured again */
};
extern const int bench_ncases;
/* A row for each contestant of each job. */
json_t *bench_steps(const struct bench_step_options *o);
int bench_step_worker(char **argv);
/* The PyTorch that is fastest of compiled or not, with either AdamW: started
 * again as *p. `label` has to stay. */
void bench_choose_torch(struct bench_peer *p, const struct bench_case *c,
                        const char *precision,
                        const struct bench_step_options *o);
/* The job's line in the results; NULL: it has none. */
json_t *bench_find_result(const struct bench_step_options *o, const char *name,
                          const char *precision);
void bench_keep_result(const struct bench_step_options *o, const char *name,
                       const char *precision, json_t *rows);

/* The single operations against what the machine can do; rows for JSON. */
void bench_ops(json_t *rows, int threads, int rounds);
/* Adds a row for each optimizer's step. */
void bench_optimizers(json_t *rows, int threads, int rounds);

/* A row of the table of several processes. */
struct bench_row {
    const char *what, *who, *version;
    struct bench_samples s;
    double rate; /* of the median; NAN: none */
    const char *unit;
};

/* Prints the row, with its time over `mine`, and appends it to rows. */
void bench_report_row(struct bench_row *r, double mine, json_t *rows);

/* What several processes cost, against peers; rows for JSON. */
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

/* The loader's rows. */
void bench_loader(int rounds, json_t *rows);

/* What a step's speed over PyTorch's is to be at least, with plait's
 * instructions, and its memory at most. */
double bench_speed_target(const char *isa, bool bf16);
#define BENCH_MEMORY_TARGET 0.7
/* The targets against what the parts have measured, which `all` has as they
 * are written; adds its own rows there. */
void bench_targets(json_t *all);

/* Time and memory of planning; rows for JSON. self: this program. */
json_t *bench_planner(const char *self, int rounds);
int bench_plan_worker(const char *ranks, const char *rounds);

#endif
