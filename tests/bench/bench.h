/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_BENCH_H
#define PLAIT_TESTS_BENCH_H

#include <stdio.h>
#include <sys/types.h>

#include <jansson.h>

#include "kernels/kernels.h"

/* One training job that everybody runs. */
struct bench_case {
    const char *name;
    int layers, hidden, heads, vocab, seq_len, batch;
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
};

/* `env`: "NAME=value" strings set in the child alone, NULL-terminated. */
void bench_peer_start(struct bench_peer *p, const char *label,
                      char *const argv[], const char *const env[]);
/* The answer to one request; NAN, and the peer is missing, if it died. */
double bench_peer_ask(struct bench_peer *p, const char *request);
void bench_peer_stop(struct bench_peer *p);

/* Modes of this program that are contestants themselves. The trainer takes
 * its threads from OMP_NUM_THREADS. */
int bench_train_worker(const struct bench_case *c, const char *precision);
int bench_replay_worker(const struct bench_case *c, enum plait_dtype type,
                        int threads);

/* The single operations against what the machine can do; rows for JSON. */
json_t *bench_ops(int threads, int rounds);

#endif
