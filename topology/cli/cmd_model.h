/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_MODEL_H
#define PLAIT_TOPOLOGY_CLI_CMD_MODEL_H

#include <getopt.h>

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

/* The options that `plait plan`, `plait estimate` and `plait simulate` have in
 * common: a model file, changes to it, a layout and a GPU type. */

enum { MODEL_SETS = 32 };

struct model_options {
    const char *model_file, *site_file, *gpu_name;
    char found_file[1024];      /* where model_file was a folder */
    struct plait_layout layout; /* sizes on the command line, else 1 */
    unsigned given;             /* bit per axis whose size was given */
    int gpus;                   /* 0: not given */
    int json;
    enum plait_framework framework;
    bool framework_given;
    bool schedule, interleaved; /* --schedule; --virtual above 1 */
    const char *key;    /* the first option that changes the model; or NULL */
    unsigned by_option; /* bit per key that an option of its own has set */
    char set[MODEL_SETS][96];
    const char *sets[MODEL_SETS];
    int nsets;
    bool takes_rest; /* arguments after "--" are the command's own */
    char **rest;
    int nrest;
};

/* Entries of a getopt_long() table; a command's own options must have other
 * letters. */
#define MODEL_OPTIONS                                      \
    {"tp", required_argument, NULL, 0x100 + PLAIT_TP},     \
        {"cp", required_argument, NULL, 0x100 + PLAIT_CP}, \
        {"ep", required_argument, NULL, 0x100 + PLAIT_EP}, \
        {"dp", required_argument, NULL, 0x100 + PLAIT_DP}, \
        {"pp", required_argument, NULL, 0x100 + PLAIT_PP}, \
        {"model", required_argument, NULL, 'm'},           \
        {"gpus", required_argument, NULL, 'u'},            \
        {"gpu-type", required_argument, NULL, 'g'},        \
        {"site", required_argument, NULL, 's'},            \
        {"micro-batch", required_argument, NULL, 'b'},     \
        {"global-batch", required_argument, NULL, 'B'},    \
        {"zero", required_argument, NULL, 'z'},            \
        {"recompute", required_argument, NULL, 'r'},       \
        {"schedule", required_argument, NULL, 'S'},        \
        {"virtual", required_argument, NULL, 'V'},         \
        {"precision", required_argument, NULL, 'P'},       \
        {"sequence", no_argument, NULL, 'q'},              \
        {"set", required_argument, NULL, 'x'},             \
        {"framework", required_argument, NULL, 'W'},       \
        {"json", no_argument, NULL, 'j'},                  \
    {                                                      \
        "help", no_argument, NULL, 'h'                     \
    }

void model_options_init(struct model_options *o);
/* Print help on the options that change the model file. */
void model_options_print_help(void);

/* Read argv. Options that are not among MODEL_OPTIONS go to `parse` with `job`.
 * Returns -1 to go on, else the exit status. */
int model_options_read(struct model_options *o, const char *command, int argc,
                       char **argv, const struct option *options,
                       int (*parse)(void *job, int opt,
                                    struct plait_error *err),
                       void *job);

/* A model, its layout and its GPUs. */
struct model_job {
    struct plait_job_config *config;
    struct plait_layout layout; /* resolved */
    struct plait_gpu_type gpu;
    int gpus;
};

/* Act as --set KEY=VALUE, or as --set VALUE where the key is "". */
int model_options_set(struct model_options *o, const char *key,
                      const char *value, struct plait_error *err);
/* Read the model file and apply the changes; NULL, with the reason in err. */
struct plait_job_config *model_options_config(const struct model_options *o,
                                              struct plait_error *err);
/* The exit status after an error in the file and the command line together:
 * PLAIT_EXIT_USAGE where the file alone is good. */
int model_options_status(const struct model_options *o);
/* Without --gpus, the GPUs are the product of the sizes. On an error
 * model_job_release() is still to be called. */
int model_job_load(struct model_job *job, const struct model_options *o,
                   struct plait_error *err);
/* The fewest GPUs that hold the training in any layout, 0 where none do; and
 * in words, also without more offloading to the host's memory. */
int model_fewest_gpus(const struct plait_job_config *config,
                      const struct plait_gpu_type *gpu, char *text,
                      size_t size);
void model_job_release(struct model_job *job);

#endif
