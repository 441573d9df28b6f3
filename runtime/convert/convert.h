/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_CONVERT_H
#define PLAIT_RUNTIME_CONVERT_CONVERT_H

#include <stdbool.h>

#include "kernels/types.h"
#include "topology/base/error.h"
#include "topology/job/job_config.h"

/* Converts models between checkpoints and other formats, a few megabytes at a
 * time on each core. */

/* What was converted. */
struct plait_converted {
    int tensors;
    int64_t parameters;
    int files;
    char dropout[160]; /* what is to be said of it; "": nothing */
    bool untied; /* a checkpoint of DCP's has a head of its own, although its
                    config.json ties it */
};

/* A whole tensor of Plait's; a vector is one row. */
struct plait_convert_tensor {
    char name[96];
    uint64_t rows, cols;
};

/* A model in another format. */
struct plait_convert_source {
    const struct plait_model_config *model;
    const struct plait_convert_tensor *tensors; /* [n], in any order */
    int n;
    /* Rows [row, row + n) of tensor `index` as fp32; on any thread. */
    int (*read)(const void *from, int index, uint64_t row, uint64_t n,
                float *out, struct plait_error *err);
    const void *from;
};

/* Writes a source as the checkpoint DIR/step-00000000, which has only weights,
 * with DIR/latest leading to it. */
int plait_convert_import(const struct plait_convert_source *source,
                         const char *dir, struct plait_converted *done,
                         struct plait_error *err);

/* The same of a source that has the tensors [n] of a map, in their order; its
 * own list is filled in. */
struct plait_hf_tensor;
int plait_convert_import_map(struct plait_convert_source *source,
                             const struct plait_hf_tensor *tensors, int n,
                             const char *dir, struct plait_converted *done,
                             struct plait_error *err);

/* Writes the Hugging Face directory `from` as such a checkpoint. */
int plait_convert_from_hf(const char *from, const char *dir,
                          struct plait_converted *done,
                          struct plait_error *err);

/* Writes the weights of the checkpoint `path` as `type` to the directory `dir`,
 * which has its tokenizer; `like` as in plait_hf_config_write(). */
int plait_convert_to_hf(const char *path, const char *dir,
                        enum plait_dtype type, const char *like,
                        struct plait_converted *done, struct plait_error *err);

/* Elements that are converted at a time. */
#define PLAIT_CONVERT_CHUNK ((uint64_t)1 << 20)

/* Calls write_file(arg, i) for i from 0 to n - 1, on as many threads as this
 * process has cores. -1 with the error of the first that failed; the others
 * then end early. */
int plait_convert_files(int n,
                        int (*write_file)(void *arg, int file,
                                          struct plait_error *err),
                        void *arg, struct plait_error *err);

#endif
