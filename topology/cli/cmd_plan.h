/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_CLI_CMD_PLAN_H
#define PLAIT_TOPOLOGY_CLI_CMD_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "topology/cli/cmd_model.h"
#include "topology/cli/hand_over.h"
#include "topology/plan/cost.h"
#include "topology/plan/plan.h"
#include "topology/predict/auto.h"

enum { PLAN_OVERS = 4 };

/* One run of `plait plan`: its options, inputs and results. */
struct plan_job {
    struct plait_plan_request request;
    struct model_options options; /* gpus: --gpus, for --auto */
    const char *node_list, *task_list, *fabric_file, *topology, *hwloc_file,
        *nccl_file, *svg_file, *host_file;
    enum hand_over format;
    int find_layout;
    const char *over[PLAN_OVERS]; /* KEY=VALUE,... */
    int novers, csv, submit;
    int status;     /* to exit with after an error */
    unsigned given; /* bit per axis: sized by the user or the model's file */
    struct plait_gpu_type gpu;
    bool gpu_known;       /* whether anything says that this is their type, */
    const char *gpu_from; /* what does, or why nothing does */
    int leaf_gpus;        /* below the fullest leaf switch; 0: not known */
    struct plait_fabric *fabric;
    struct plait_node *node;
    struct plait_job_config *config;
    struct plait_traffic traffic;
    char **names;
    int *tasks;
    struct plait_plan *plan;
    struct plait_cost cost, linear;
    double bound;
    double computation; /* seconds of a step without communication */
    int *order;         /* [nnodes] NODE_RANK -> node index */
    int *gpus;          /* LOCAL_RANK -> GPU, -1 none */
};

/* Fill in the names of the nodes and their tasks; what no option says follows
 * from the job that this runs in or from the sizes, with a line on stderr. */
int plait_plan_load_nodes(struct plan_job *job, struct plait_error *err);
/* Read the nodes, switches, GPU type and model that the options name; -1 with
 * the reason, and job->status is what to exit with. */
int plait_plan_load(struct plan_job *job, struct plait_error *err);
int plait_plan_print_json(const struct plan_job *job);
void plait_plan_print(const struct plan_job *job, FILE *out);
/* Draw the plan as SVG; for plait_cmd_write(). */
void plait_plan_draw(const void *job, FILE *out);
/* Print the command that trains in this layout, to be pasted. */
void plait_plan_print_command(const struct plan_job *job,
                              const struct plait_choice *best, int gpus);
/* Print the srun that has the ranks of --hostfile as SLURM_PROCID. */
void plait_plan_print_hosted(const struct plan_job *job);
/* Set the GPUs of a node and below a leaf switch of this type, where the
 * options say how many. */
void plait_plan_set_node(const struct plan_job *job,
                         struct plait_gpu_type *gpu);
/* The number of nodes for `gpus` GPUs where none are named, and of tasks on
 * each. */
void plait_plan_split_nodes(const struct plan_job *job, int gpus, int *nodes,
                            int *per_node);
/* --submit: numbers of GPUs, sorted by when a run on them would end; returns
 * the exit status. */
int plait_plan_submit(const struct plan_job *job);
/* Value i of a list A,B,...; and how many values it has. */
void plait_plan_take_value(const char *values, int i, char *out, size_t size);
int plait_plan_count_values(const char *values);
/* A number of GPUs in --over; -1 with the reason. */
int plait_plan_take_gpus(const char *value, int *gpus, struct plait_error *err);
json_t *plait_plan_choice_to_json(const struct plait_job_config *config,
                                  const struct plait_choice *choice);
/* Prints the ranked layouts; returns the exit status. */
int plait_plan_auto(const struct plan_job *job);
/* Print the columns of the table from dp to offload. */
void plait_plan_print_settings(const struct plait_choice *c);
/* The layers of its stages. */
struct plait_stage_split;
void plait_plan_set_split(const struct plait_job_config *config,
                          const struct plait_choice *choice,
                          struct plait_stage_split *split);
/* The best layout of each case of --over; returns the exit status. */
int plait_plan_sweep(const struct plan_job *job);

#endif
