/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes and tasks of `plait plan`: those that the options name, else those
 * of the Slurm job that it runs in, else as many as the sizes need. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"
#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"

enum { TASKS_MOST = 1 << 20 };

/* What the sizes say: the fewest tasks that make them, and the tp groups, which
 * stay within a node. */
struct need {
    int tasks, tp;
    bool any; /* more of them do too: dp is not given */
    bool all; /* a size is auto, and takes all tasks of the nodes */
};

static int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

static void find_need(const struct plan_job *job, struct need *need)
{
    struct plait_layout layout = job->request.layout;
    unsigned of_file = job->config ? job->config->sizes_given & ~job->given : 0;
    int *size = layout.size;

    need->all = false;
    for (int i = 0; i < PLAIT_NAXES; i++) {
        if (of_file >> i & 1)
            size[i] = job->config->parallel.layout.size[i];
        need->all |= i != PLAIT_DP && i != PLAIT_EP && size[i] == PLAIT_AUTO;
    }
    need->any = size[PLAIT_DP] == PLAIT_AUTO ||
                !((job->given | of_file) >> PLAIT_DP & 1);
    if (need->any && size[PLAIT_CP] > 0 && size[PLAIT_EP] > 1)
        size[PLAIT_DP] = size[PLAIT_EP] / gcd(size[PLAIT_EP], size[PLAIT_CP]);
    need->tp = size[PLAIT_TP] > 0 ? size[PLAIT_TP] : 1;
    need->tasks = plait_layout_given(&layout);
    if (need->tasks > TASKS_MOST)
        need->tasks = TASKS_MOST;
}

/* "8", "8,4,8" or Slurm's "8(x3),4" -> one count for each of at most `most`
 * nodes, or only the number of nodes, with `tasks` NULL; or -1. */
static int parse_tasks(const char *text, int *tasks, int most)
{
    int n = 0, count, used;
    char x;

    while (n < most) {
        int times = 1, more = 0;

        if (sscanf(text, "%7d%n", &count, &used) != 1 || count < 1)
            return -1;
        text += used;
        if (sscanf(text, "(x%7d%c%n", &times, &x, &more) == 2 && x == ')')
            text += more;
        if (times < 1 || times > most - n)
            return -1;
        for (int i = 0; i < times; i++)
            if (tasks)
                tasks[n + i] = count;
        n += times;
        if (!*text)
            return n;
        if (*text++ != ',')
            return -1;
    }
    return -1;
}

static bool is_one_number(const char *text)
{
    return text[strspn(text, "0123456789")] == '\0';
}

/* The tasks of --tasks-per-node; without --nodes they say how many nodes. */
static int take_tasks(struct plan_job *job, struct plait_error *err)
{
    int n = parse_tasks(job->task_list, job->tasks, job->request.nnodes);

    if (n == 1 && is_one_number(job->task_list))
        for (; n < job->request.nnodes; n++)
            job->tasks[n] = job->tasks[0];
    if (n == job->request.nnodes)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "--tasks-per-node=%.60s: must be one number, or one "
                        "for each of the %d nodes as in 8(x3),4",
                        job->task_list, job->request.nnodes);
}

/* The fewest tasks on each of `nodes` nodes that make the sizes, in whole tp
 * groups; 0: they do not fit on so many. */
static int spread(const struct need *need, int nodes)
{
    int each = need->tasks / nodes;

    if (need->tasks % nodes == 0 && each % need->tp == 0)
        return each;
    for (each = need->tp; need->any && each <= need->tasks; each += need->tp)
        if ((int64_t)nodes * each % need->tasks == 0)
            return each;
    return 0;
}

/* The fewest nodes of at most `most` tasks that have equally many. */
static int count_nodes(const struct need *need, int most)
{
    int least = (need->tasks + most - 1) / most, n;

    for (n = least; n < need->tasks; n++)
        if (need->tasks % n == 0 && spread(need, n))
            return n;
    for (n = least; need->tasks % n; n++)
        ;
    return n;
}

static int name_nodes(struct plan_job *job, const char *list,
                      struct plait_error *err)
{
    int n;

    job->names = plait_hostlist_create(list, &n, err);
    if (!job->names)
        return -1;
    job->request.nnodes = n;
    job->request.nodes = (const char *const *)job->names;
    job->tasks = calloc((size_t)n, sizeof(*job->tasks));
    job->request.tasks = job->tasks;
    return job->tasks ? 0 : plait_errorf(err, "out of memory");
}

static void forget_nodes(struct plan_job *job)
{
    plait_hostlist_destroy(job->names, job->names ? job->request.nnodes : 0);
    free(job->tasks);
    job->names = NULL;
    job->tasks = NULL;
}

static void fill_tasks(struct plan_job *job, int each)
{
    for (int i = 0; i < job->request.nnodes; i++)
        job->tasks[i] = each;
}

/* Tasks on the nodes that are named, where --tasks-per-node does not say it. */
static void fill_named(struct plan_job *job)
{
    int each = job->node ? job->node->ngpus : 0;
    struct need need;

    find_need(job, &need);
    if (!each && !job->find_layout && need.tasks > job->request.nnodes) {
        each = spread(&need, job->request.nnodes);
        if (each)
            fprintf(stderr,
                    "plait: no --tasks-per-node: %d on each node, as the "
                    "sizes need\n",
                    each);
    }
    fill_tasks(job, each ? each : 1);
}

/* Whether the job that this runs in has nodes and tasks for these sizes: then
 * they are taken. */
static bool take_job(struct plan_job *job)
{
    const char *list = getenv("SLURM_JOB_NODELIST"),
               *tasks = getenv("SLURM_TASKS_PER_NODE");
    struct plait_error ignored;
    struct need need;
    int each, sum;

    if (!list || !*list || name_nodes(job, list, &ignored) < 0)
        return false;
    find_need(job, &need);
    each = spread(&need, job->request.nnodes);
    if (tasks && parse_tasks(tasks, job->tasks, job->request.nnodes) ==
                     job->request.nnodes) {
        sum = plait_layout_tasks(job->tasks, job->request.nnodes);
        if (sum % need.tasks == 0)
            each = -1;
    }
    if (job->task_list && take_tasks(job, &ignored) == 0)
        each = -1;
    if (each == 0) {
        forget_nodes(job);
        return false;
    }
    if (each > 0)
        fill_tasks(job, each);
    sum = plait_layout_tasks(job->tasks, job->request.nnodes);
    fprintf(stderr, "plait: no --nodes: %d task%s on this job's %s\n", sum,
            sum == 1 ? "" : "s", list);
    return true;
}

/* Nodes of names that stand for any, with `each` tasks on each. */
static int make_nodes(struct plan_job *job, int nodes, int each,
                      struct plait_error *err)
{
    char list[40] = "localhost";

    if (nodes > 1)
        snprintf(list, sizeof(list), "node[1-%d]", nodes);
    if (name_nodes(job, list, err) < 0)
        return -1;
    fill_tasks(job, each);
    return 0;
}

static void tell(const struct plan_job *job, const char *why)
{
    int n = job->request.nnodes, sum = plait_layout_tasks(job->tasks, n);

    fprintf(stderr, "plait: no --nodes: %d task%s, %s, on %d node%s\n", sum,
            sum == 1 ? "" : "s", why, n, n == 1 ? "" : "s");
}

/* As many nodes as the sizes need. */
static int make_needed(struct plan_job *job, struct plait_error *err)
{
    int most = job->node ? job->node->ngpus : job->gpu.per_node, nodes;
    struct need need;
    bool full;

    find_need(job, &need);
    if (most < 1)
        most = 1;
    full =
        need.tasks <= most && most % need.tasks == 0 && (need.all || job->node);
    nodes = full ? 1 : count_nodes(&need, most);
    if (make_nodes(job, nodes, full ? most : need.tasks / nodes, err) < 0)
        return -1;
    tell(job, !full       ? "as the sizes need"
              : job->node ? "one for each GPU"
                          : "as usual");
    return 0;
}

/* As many nodes as --tasks-per-node lists, or as the sizes need with so many on
 * each. */
static int make_listed(struct plan_job *job, struct plait_error *err)
{
    const char *why = "as --tasks-per-node says";
    int nodes = parse_tasks(job->task_list, NULL, TASKS_MOST), each = 1;
    struct need need;

    find_need(job, &need);
    if (nodes == 1)
        parse_tasks(job->task_list, &each, 1);
    if (nodes == 1 && is_one_number(job->task_list) && need.tasks > each) {
        nodes = (need.tasks + each - 1) / each;
        why = "as the sizes need";
    }
    if (make_nodes(job, nodes < 0 ? 1 : nodes, each, err) < 0 ||
        take_tasks(job, err) < 0)
        return -1;
    tell(job, why);
    return 0;
}

/* Nodes of any names are enough for a plan on paper, but not for files that
 * name them. */
static int infer_nodes(struct plan_job *job, struct plait_error *err)
{
    const char *named = job->fabric_file ? "--fabric"
                        : job->host_file ? "--hostfile"
                                         : NULL;

    job->status = PLAIT_EXIT_USAGE;
    if (take_job(job))
        return 0;
    errno = EINVAL;
    if (named)
        return plait_errorf(err,
                            "plan: %s needs --nodes, whose names are in "
                            "it",
                            named);
    if (!job->given && !job->config && !job->node && !job->task_list)
        return plait_errorf(err, "plan: nothing says how many tasks there "
                                 "are; give sizes, as in --tp=2 --dp=4, or "
                                 "--nodes and --tasks-per-node");
    return job->task_list ? make_listed(job, err) : make_needed(job, err);
}

int plait_plan_load_nodes(struct plan_job *job, struct plait_error *err)
{
    struct plait_error why;
    int rc = 0, all = job->options.gpus               ? job->options.gpus
                      : job->node && job->node->ngpus ? job->node->ngpus
                                                      : 1;

    job->status = PLAIT_EXIT_USAGE;
    if (!job->node_list && !job->find_layout) {
        if (infer_nodes(job, err) < 0)
            return -1;
    } else if (name_nodes(job, job->node_list ? job->node_list : "localhost",
                          &why) < 0) {
        return plait_errorf(err, "--nodes=%.60s: %.200s", job->node_list,
                            why.text);
    } else if (job->task_list) {
        rc = take_tasks(job, err);
    } else if (job->find_layout) {
        fill_tasks(job, all);
    } else {
        fill_named(job);
    }
    if (rc == 0)
        job->status = PLAIT_EXIT_FAILED;
    return rc;
}
