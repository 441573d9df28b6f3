/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"
#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"
#include "topology/predict/auto.h"

/* plait plan: which rank runs where, and what it costs. */

static void print_help(void)
{
    printf(
        "Usage: plait plan [OPTION...]\n\n"
        "Place the ranks of a layout on nodes, as srun --tp=... would.\n\n"
        "  --tp=N|auto --cp=N|auto --ep=N --pp=N|auto --dp=N|auto\n"
        "                       parallel sizes (1; dp is inferred)\n"
        "  --nodes LIST         nodes in Slurm's order, n[1-4,7]; else this "
        "job's, or as\n"
        "                       many as the sizes need\n"
        "  --tasks-per-node N   tasks on each node; 8(x3),4 where they differ\n"
        "  --fabric FILE        the switches: topology.conf, topology.yaml,\n"
        "                       scontrol show topology, ibnetdiscover\n"
        "  --topology NAME      of several in topology.yaml, this one; "
        "without\n"
        "                       --fabric, what Slurm says of it here\n"
        "  --node-hwloc FILE    a node's topology: an hwloc XML\n"
        "  --node-nccl FILE     ... an NCCL topology XML\n"
        "  --gpu-type TYPE      figures of the GPUs and links; else those of "
        "the node's\n"
        "                       file, of the site or of this machine\n"
        "  --site FILE          the site's own figures, as plait probe writes "
        "them\n"
        "  --rank-order tp-cp-ep-dp-pp|auto\n"
        "                       leftmost varies fastest\n"
        "  --placement topology|linear\n"
        "                       by the fabric, or in Slurm's order\n"
        "  --auto               rank the layouts that fit in memory, best "
        "first\n"
        "  --gpus N             for --auto: this many GPUs, wherever they "
        "are\n"
        "  --over KEY=A,B,...   for --auto: the best layout of each case; KEY "
        "is gpus,\n"
        "                       gpu-type or a key such as model.seq_len; "
        "repeatable\n"
        "  --csv                ... as CSV\n"
        "  --submit             for --auto: asks Slurm when a job of each "
        "number of GPUs\n"
        "                       (--over gpus=A,B,... or up to --gpus) would "
        "start, and\n"
        "                       ranks them by wait and run; what follows -- "
        "goes to sbatch\n"
        "  --json               print one JSON document\n"
        "  --svg FILE           draw the placement\n"
        "  --hostfile FILE      write a SLURM_HOSTFILE with this placement\n"
        "  --format TRAINER     the layout as a trainer takes it: megatron, "
        "deepspeed,\n"
        "                       torchtitan, nemo, jax, lightning, accelerate\n"
        "  --help               print this\n\n"
        "  --model FILE         the model and how it is trained; then also\n");
    model_options_print_help();
}

static const struct option options[] = {
    MODEL_OPTIONS,
    {"nodes", required_argument, NULL, 'n'},
    {"tasks-per-node", required_argument, NULL, 't'},
    {"fabric", required_argument, NULL, 'f'},
    {"topology", required_argument, NULL, 'T'},
    {"node-hwloc", required_argument, NULL, 'w'},
    {"node-nccl", required_argument, NULL, 'c'},
    {"rank-order", required_argument, NULL, 'o'},
    {"placement", required_argument, NULL, 'p'},
    {"auto", no_argument, NULL, 'a'},
    {"over", required_argument, NULL, 'O'},
    {"csv", no_argument, NULL, 'C'},
    {"submit", no_argument, NULL, 'Q'},
    {"svg", required_argument, NULL, 'v'},
    {"hostfile", required_argument, NULL, 'H'},
    {"format", required_argument, NULL, 'F'},
    {0}};

static int parse_placement(const char *text, enum plait_placement *placement,
                           struct plait_error *err)
{
    if (strcmp(text, "topology") == 0)
        *placement = PLAIT_PLACE_TOPOLOGY;
    else if (strcmp(text, "linear") == 0)
        *placement = PLAIT_PLACE_LINEAR;
    else
        return plait_errorf(
            err, "--placement=%.40s: must be topology or linear", text);
    return 0;
}

/* Options whose argument is only stored. */
static const struct {
    int opt;
    size_t offset;
} text_options[] = {
    {'n', offsetof(struct plan_job, node_list)},
    {'t', offsetof(struct plan_job, task_list)},
    {'f', offsetof(struct plan_job, fabric_file)},
    {'T', offsetof(struct plan_job, topology)},
    {'w', offsetof(struct plan_job, hwloc_file)},
    {'c', offsetof(struct plan_job, nccl_file)},
    {'v', offsetof(struct plan_job, svg_file)},
    {'H', offsetof(struct plan_job, host_file)},
};

static int parse_option(void *arg, int opt, struct plait_error *err)
{
    struct plan_job *job = arg;
    struct plait_plan_request *r = &job->request;

    for (size_t i = 0; i < sizeof(text_options) / sizeof(text_options[0]); i++)
        if (text_options[i].opt == opt) {
            memcpy((char *)job + text_options[i].offset, &optarg,
                   sizeof(optarg));
            return 0;
        }
    switch (opt) {
    case 'o':
        if (plait_layout_parse_rank_order(optarg, &r->layout, &r->order_free,
                                          err) < 0)
            return -1;
        r->order_given = !r->order_free;
        return 0;
    case 'p':
        return parse_placement(optarg, &r->placement, err);
    case 'F':
        return hand_over_parse("format", optarg, &job->format, err);
    case 'a':
        job->find_layout = 1;
        return 0;
    case 'C':
        job->csv = 1;
        return 0;
    case 'Q':
        job->submit = 1;
        return 0;
    case 'O':
        if (job->novers == PLAN_OVERS)
            return plait_errorf(err, "plan: --over at most %d times",
                                PLAN_OVERS);
        job->over[job->novers++] = optarg;
        return 0;
    default:
        print_help();
        return 0;
    }
}

static void take_sizes(struct plan_job *job)
{
    const struct model_options *o = &job->options;

    memcpy(job->request.layout.size, o->layout.size, sizeof(o->layout.size));
    job->given = o->given;
}

/* -1 to go on, else the exit status. */
static int check_submit(struct plan_job *job)
{
    bool over_gpus = job->novers == 1 && strncmp(job->over[0], "gpus=", 5) == 0;

    if (!job->submit)
        return plait_cmd_misused("plan: what follows -- goes to sbatch, with "
                                 "--submit");
    if (!job->find_layout)
        return plait_cmd_misused("plan: --submit needs --auto");
    if (job->csv || job->node_list || job->fabric_file || job->topology)
        return plait_cmd_misused("plan: --submit asks for numbers of nodes "
                                 "and prints a table or JSON: without %s",
                                 job->csv           ? "--csv"
                                 : job->node_list   ? "--nodes"
                                 : job->fabric_file ? "--fabric"
                                                    : "--topology");
    if (job->novers ? !over_gpus || job->options.gpus : !job->options.gpus)
        return plait_cmd_misused("plan: --submit needs --over gpus=A,B,... or "
                                 "--gpus N, and no other --over");
    take_sizes(job);
    return -1;
}

static int parse_arguments(struct plan_job *job, int argc, char **argv)
{
    struct model_options *o = &job->options;
    int rc;

    o->takes_rest = true;
    rc = model_options_read(o, "plan", argc, argv, options, parse_option, job);
    if (rc >= 0)
        return rc;
    if (job->hwloc_file && job->nccl_file)
        return plait_cmd_misused(
            "plan: give one of --node-hwloc and --node-nccl");
    if (job->find_layout && !o->model_file)
        return plait_cmd_misused("plan: --auto needs --model");
    if (job->find_layout && (job->svg_file || job->host_file))
        return plait_cmd_misused("plan: --auto compares layouts and places "
                                 "none; give the sizes of one with %s",
                                 job->svg_file ? "--svg" : "--hostfile");
    if (job->submit || o->rest)
        return check_submit(job);
    if ((job->novers && !job->find_layout) || (job->csv && !job->novers))
        return plait_cmd_misused("plan: %s", job->novers
                                                 ? "--over needs --auto"
                                                 : "--csv needs --over");
    if (job->novers && o->json)
        return plait_cmd_misused("plan: --over prints a table, or CSV with "
                                 "--csv, and no JSON");
    if (o->key && !o->model_file)
        return plait_cmd_misused("plan: %s needs --model", o->key);
    if (o->gpus && (!job->find_layout || job->node_list || job->task_list))
        return plait_cmd_misused("plan: --gpus goes with --auto, without "
                                 "--nodes and --tasks-per-node");
    take_sizes(job);
    return -1;
}

/* With a model, the step's time includes its computation. */
static int add_computation(struct plan_job *job, struct plait_error *err)
{
    struct plait_estimate e;
    double rest;

    if (plait_estimate(job->config, &job->plan->layout, &job->gpu, &e, err) < 0)
        return -1;
    rest = e.step_s;
    for (int i = 0; i < PLAIT_NAXES; i++)
        rest -= e.axis_s[i];
    job->computation = rest;
    job->cost.step += rest;
    job->linear.step += rest;
    job->bound += rest;
    return 0;
}

static int make_plan(struct plan_job *job, struct plait_error *err)
{
    struct plait_plan_request *r = &job->request;
    struct plait_error warning;
    int world = plait_layout_tasks(job->tasks, r->nnodes);

    if (plait_layout_choose(&r->layout, job->given, job->config, world,
                            &job->gpu, err) < 0) {
        if (errno != ENOMEM) /* no layout fits */
            job->status = job->config ? model_options_status(&job->options)
                                      : PLAIT_EXIT_USAGE;
        return -1;
    }
    if (job->config) {
        plait_traffic_set(&job->traffic, job->config, &r->layout);
        r->traffic = &job->traffic;
    }
    job->plan = plait_plan_create(r, err);
    if (!job->plan) {
        if (errno != ENOMEM)
            job->status = PLAIT_EXIT_USAGE;
        return -1;
    }
    if (plait_plan_check_order(job->plan, r->nodes, &warning) < 0)
        fprintf(stderr, "plait: warning: %s\n", warning.text);
    if (plait_cost_plan(r, job->plan, &job->cost, &job->linear, &job->bound) <
        0)
        return plait_errorf(err, "out of memory");
    return job->config ? add_computation(job, err) : 0;
}

/* One line per task in the order of RANK, for srun
 * --distribution=arbitrary. */
static void print_hostfile(const void *arg, FILE *out)
{
    const struct plan_job *job = arg;

    for (int i = 0; i < job->plan->nnodes; i++) {
        int node = job->order[i];

        for (int k = 0; k < job->plan->tasks[node]; k++)
            fprintf(out, "%s\n", job->names[node]);
    }
}

static int order_nodes(struct plan_job *job, struct plait_error *err)
{
    const struct plait_plan *plan = job->plan;
    const struct plait_node *node = job->node;
    int most = 0;

    job->order = malloc((size_t)plan->nnodes * sizeof(*job->order));
    for (int i = 0; i < plan->nnodes; i++)
        most = plan->tasks[i] > most ? plan->tasks[i] : most;
    if (node && node->ngpus > most)
        most = node->ngpus;
    job->gpus = malloc((size_t)most * sizeof(*job->gpus));
    if (!job->order || !job->gpus)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < plan->nnodes; i++)
        job->order[plan->node_rank[i]] = i;
    for (int i = 0; i < most; i++)
        job->gpus[i] = node ? -1 : i;
    if (node)
        plait_node_order_gpus(node, NULL, node->ngpus,
                              plan->layout.size[PLAIT_TP], job->gpus);
    return 0;
}

static bool is_stdout(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

static int print_format(const struct plan_job *job)
{
    const struct plait_layout *layout = &job->plan->layout;
    struct plait_error err;
    char *text;

    if (hand_over_check(job->format, layout, &err) < 0)
        return plait_cmd_failed("%s", err.text);
    text = hand_over_format(job->format, layout);
    if (!text)
        return plait_cmd_failed("out of memory");
    puts(text);
    free(text);
    return PLAIT_EXIT_GOOD;
}

static int write_outputs(struct plan_job *job)
{
    int taken = is_stdout(job->host_file) + is_stdout(job->svg_file) +
                (job->format != HAND_OVER_NONE);
    struct plait_error err;
    int rc = PLAIT_EXIT_GOOD;

    if (taken + job->options.json > 1)
        return plait_cmd_misused("plan: only one of --json, --format, "
                                 "--svg - and --hostfile - can have standard "
                                 "output");
    if (order_nodes(job, &err) < 0)
        return plait_cmd_failed("%s", err.text);
    if (job->host_file)
        rc = plait_cmd_write(job->host_file, print_hostfile, job);
    if (rc == PLAIT_EXIT_GOOD && job->svg_file)
        rc = plait_cmd_write(job->svg_file, plait_plan_draw, job);
    if (rc == PLAIT_EXIT_GOOD && job->format != HAND_OVER_NONE)
        rc = print_format(job);
    if (rc != PLAIT_EXIT_GOOD || taken)
        return rc;
    if (job->options.json)
        return plait_plan_print_json(job);
    plait_plan_print(job, stdout);
    if (job->host_file)
        plait_plan_print_hosted(job);
    return PLAIT_EXIT_GOOD;
}

static void release_job(struct plan_job *job)
{
    plait_plan_destroy(job->plan);
    plait_fabric_destroy(job->fabric);
    plait_node_destroy(job->node);
    plait_job_config_destroy(job->config);
    plait_hostlist_destroy(job->names, job->names ? job->request.nnodes : 0);
    free(job->tasks);
    free(job->order);
    free(job->gpus);
}

int plait_cmd_plan(int argc, char **argv)
{
    struct plan_job job = {.status = PLAIT_EXIT_FAILED};
    struct plait_error err;
    int rc;

    plait_layout_init(&job.request.layout);
    model_options_init(&job.options);
    rc = parse_arguments(&job, argc, argv);
    if (rc >= 0)
        return rc;
    if (plait_plan_load(&job, &err) < 0)
        rc = plait_cmd_ended(job.status, &err);
    else if (job.submit)
        rc = plait_plan_submit(&job);
    else if (job.novers)
        rc = plait_plan_sweep(&job);
    else if (job.find_layout)
        rc = plait_plan_auto(&job);
    else if (make_plan(&job, &err) < 0)
        rc = plait_cmd_ended(job.status, &err);
    else
        rc = write_outputs(&job);
    release_job(&job);
    return rc;
}
