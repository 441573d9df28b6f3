/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_RECORDS_H
#define PLAIT_TESTS_UNIT_RECORDS_H

#include <stdbool.h>

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

/* A published run; see tests/records/README.md. */
struct record {
    const char *set; /* name of its file */
    char name[128];
    bool fit; /* is in the half that constants are fitted to */
    bool moe;
    struct plait_job_config *config;
    struct plait_layout layout;
    int gpus;
    char gpu[16];    /* one of plait_gpu_types */
    bool slower;     /* the H100 of 500 W with 96 GB */
    bool blocking;   /* kernels are launched one by one */
    double nic;      /* bytes/s of a GPU in the site's network; 0: the usual */
    double measured; /* tokens/s per GPU, or TFLOP/s */
    bool tflops, causal; /* measured is TFLOP/s; FLOPs count half of the
                          * scores */
    double memory;       /* bytes, 0: not published */
};

struct records {
    int n;
    struct record *at;
};

/* Names of the files, NULL at the end; of the first ones (OLDER), and of those
 * whose software or site is not that of the constants. */
enum { RECORDS_OLDER = 8 };
extern const char *const records_sets[];

/* All files of a folder; NULL, with the reason in err. */
struct records *records_create(const char *folder, struct plait_error *err);
void records_destroy(struct records *records);

/* Predicts the speed in the unit of `measured`, and the memory in bytes if
 * `memory` is not NULL. */
int record_predict(const struct record *record,
                   const struct plait_gpu_type *gpu, double *speed,
                   double *memory);
/* Seconds of a simulated step over those of the estimate; 0: neither. */
double record_simulate(const struct record *record,
                       const struct plait_gpu_type *gpu);
/* Prints the constants that fit the marked half best: records_fit.c. */
void records_fit(const struct records *records);
/* The same for those of topology/predict/scale.h. */
void records_fit_scale(const struct records *records);

/* The GPU type, changed as the record says. */
void record_gpu(const struct record *record, struct plait_gpu_type *gpu);

#endif
