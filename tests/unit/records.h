/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_RECORDS_H
#define PLAIT_TESTS_UNIT_RECORDS_H

#include <stdbool.h>

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

/* Published runs, tests/records/README.md. */
struct record {
    const char *set; /* the file's name */
    char name[128];
    bool fit; /* one of the half that constants are fitted to */
    bool moe;
    struct plait_job_config *config;
    struct plait_layout layout;
    int gpus;
    char gpu[16]; /* of plait_gpu_types */
    bool slower;  /* the H100 of 500 W with 96 GB */
    bool unfused;
    double measured;     /* tokens/s of a GPU, or TFLOP/s */
    bool tflops, causal; /* the latter: half of the scores counted */
    double memory;       /* bytes, 0: not published */
};

struct records {
    int n;
    struct record *at;
};

/* Names of the files, NULL at the end. */
extern const char *const records_sets[];

/* All files of a folder; NULL, with the reason in err. */
struct records *records_create(const char *folder, struct plait_error *err);
void records_destroy(struct records *records);

/* Speed in the unit of `measured`; where `memory` is not NULL, bytes. */
int record_predict(const struct record *record,
                   const struct plait_gpu_type *gpu, double *speed,
                   double *memory);
/* Print the constants that the marked half gives, records_fit.c. */
void records_fit(const struct records *records);

/* The type with what the record says of it. */
void record_gpu(const struct record *record, struct plait_gpu_type *gpu);

#endif
