/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"
#include "topology/start/scontrol.h"

/* plait plan --auto --submit: sort numbers of GPUs by when a run on them would
 * end: Slurm predicts when it would start, the estimate how long it takes. */

enum { SHAPES_MOST = 16, OPTIONS = 4 };

/* A job's time limit is its predicted run times MARGIN plus MARGIN_MINUTES, for
 * what the prediction lacks: start, data, checkpoints. */
#define MARGIN 1.25
#define MARGIN_MINUTES 10

struct shape {
    int gpus, nodes, per_node;
    struct plait_choice best;
    double wait, run; /* seconds */
    int64_t start;
    char why[160]; /* why it is impossible; "": it is possible */
};

struct shapes {
    const struct plan_job *job;
    int n;
    struct shape at[SHAPES_MOST];
};

static int add_shape(struct shapes *s, int gpus, struct plait_error *err)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i].gpus == gpus)
            return 0;
    if (s->n == SHAPES_MOST)
        return plait_errorf(err, "--submit: more than %d numbers of GPUs",
                            SHAPES_MOST);
    s->at[s->n++].gpus = gpus;
    return 0;
}

/* The numbers of GPUs in --over, or --gpus and the powers of two below it. */
static int list_shapes(struct shapes *s, struct plait_error *err)
{
    const struct plan_job *job = s->job;
    const char *values = job->novers ? strchr(job->over[0], '=') + 1 : "";
    int most = job->options.gpus, fewest, gpus;

    if (job->novers && !*values)
        return plait_errorf(err, "--over=gpus=: names no number of GPUs");
    for (int i = 0; *values && i < plait_plan_count_values(values); i++) {
        char value[32];

        plait_plan_take_value(values, i, value, sizeof(value));
        if (plait_plan_take_gpus(value, &gpus, err) < 0 ||
            add_shape(s, gpus, err) < 0)
            return -1;
    }
    if (job->novers)
        return 0;
    fewest = plait_auto_fewest_free(job->config, &job->gpu);
    for (gpus = fewest ? fewest : most; gpus < most; gpus *= 2)
        if (s->n == SHAPES_MOST - 1 || add_shape(s, gpus, err) < 0)
            break;
    return add_shape(s, most, err);
}

/* Find the fastest layout, and how long the run takes, failures included. */
static int predict(const struct shapes *s, struct shape *shape,
                   struct plait_error *err)
{
    const struct plan_job *job = s->job;
    struct plait_layout wanted = job->request.layout;
    struct plait_choices *found;
    struct plait_goodput g;
    struct plait_error why;

    for (int i = 0; i < PLAIT_NAXES; i++)
        if (!(job->given & 1u << i))
            wanted.size[i] = PLAIT_AUTO;
    found = plait_auto_create(job->config, &wanted, shape->gpus, &job->gpu, 1);
    if (!found)
        return plait_errorf(err, "out of memory");
    if (found->n) {
        shape->best = found->choice[0];
    } else {
        plait_auto_why(found, job->config, shape->gpus, &job->gpu, &why);
        snprintf(shape->why, sizeof(shape->why), "%.150s", why.text);
    }
    plait_choices_destroy(found);
    shape->run = (double)job->config->train.steps * shape->best.estimate.step_s;
    plait_estimate_goodput(&job->gpu, shape->gpus, &g);
    if (shape->run > g.between && g.share > 0)
        shape->run /= g.share;
    return 0;
}

static void ask_slurm(const struct shapes *s, struct shape *shape)
{
    const struct plan_job *job = s->job;
    const struct model_options *o = &job->options;
    char nodes[24], tasks[40], gpus[40], limit[40];
    char **options = calloc((size_t)(OPTIONS + o->nrest + 1), sizeof(char *));
    struct plait_error why;
    int n = 0;

    plait_plan_split_nodes(job, shape->gpus, &shape->nodes, &shape->per_node);
    if (!options || shape->why[0]) {
        free(options);
        return;
    }
    snprintf(nodes, sizeof(nodes), "--nodes=%d", shape->nodes);
    snprintf(tasks, sizeof(tasks), "--ntasks-per-node=%d", shape->per_node);
    snprintf(gpus, sizeof(gpus), "--gpus-per-node=%d", shape->per_node);
    snprintf(limit, sizeof(limit), "--time=%.0f",
             fmin(ceil(shape->run * MARGIN / 60) + MARGIN_MINUTES, 1e7));
    options[n++] = nodes;
    options[n++] = tasks;
    options[n++] = limit;
    if (job->gpu.units)
        options[n++] = gpus;
    for (int i = 0; i < o->nrest; i++) /* so that the user's options win */
        options[n++] = o->rest[i];
    if (plait_sbatch_start(options, &shape->start, &why) < 0)
        snprintf(shape->why, sizeof(shape->why), "%.150s", why.text);
    else
        shape->wait = fmax(0, (double)(shape->start - (int64_t)time(NULL)));
    free(options);
}

static int compare(const void *a, const void *b)
{
    const struct shape *x = a, *y = b;
    double left = x->wait + x->run, right = y->wait + y->run;

    if (!x->why[0] != !y->why[0])
        return x->why[0] ? 1 : -1;
    if (left != right && !x->why[0])
        return left < right ? -1 : 1;
    return x->gpus - y->gpus;
}

/* "57 s", "12 min", "3.2 h", "5.1 days" */
static const char *duration(double s, char *buf, size_t size)
{
    if (s < 100)
        snprintf(buf, size, "%.0f s", s);
    else if (s < 6000)
        snprintf(buf, size, "%.0f min", s / 60);
    else if (s < 48 * 3600)
        snprintf(buf, size, "%.1f h", s / 3600);
    else
        snprintf(buf, size, "%.1f days", s / 86400);
    return buf;
}

static void print_shape(const struct shape *s)
{
    const int *size = s->best.layout.size;
    char start[24] = "", wait[24], run[24], end[24];
    time_t at = (time_t)s->start;
    struct tm tm;

    printf("%5d %5d  ", s->gpus, s->nodes);
    if (s->why[0]) {
        printf("%s\n", s->why);
        return;
    }
    if (localtime_r(&at, &tm))
        strftime(start, sizeof(start), "%m-%d %H:%M", &tm);
    printf("%11s %9s %9s %9s  tp %d", start,
           duration(s->wait, wait, sizeof(wait)),
           duration(s->run, run, sizeof(run)),
           duration(s->wait + s->run, end, sizeof(end)), size[PLAIT_TP]);
    for (int i = PLAIT_CP; i < PLAIT_NAXES; i++)
        if (size[i] > 1)
            printf(" %s %d", plait_axis_names[i], size[i]);
    printf("\n");
}

static void print_text(const struct shapes *s)
{
    const struct shape *best = &s->at[0];

    printf("%lld steps, by when they would be done:\n\n"
           " GPUs nodes       start      wait       run      done  layout\n",
           (long long)s->job->config->train.steps);
    for (int i = 0; i < s->n; i++)
        print_shape(&s->at[i]);
    if (!best->why[0])
        plait_plan_print_command(s->job, &best->best, best->gpus);
}

static json_t *to_json(const struct shapes *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->n; i++) {
        const struct shape *p = &s->at[i];
        json_t *one = json_pack("{si si si}", "gpus", p->gpus, "nodes",
                                p->nodes, "tasks_per_node", p->per_node);

        if (p->why[0])
            json_object_set_new(one, "reason", json_string(p->why));
        else
            json_object_update_new(
                one,
                json_pack("{sI sf sf sf so}", "start", (json_int_t)p->start,
                          "wait_s", p->wait, "run_s", p->run, "done_s",
                          p->wait + p->run, "choice",
                          plait_plan_choice_to_json(s->job->config, &p->best)));
        json_array_append_new(list, one);
    }
    return json_pack("{sI so}", "steps",
                     (json_int_t)s->job->config->train.steps, "shapes", list);
}

static int find_shapes(struct shapes *s, struct plait_error *err)
{
    if (list_shapes(s, err) < 0)
        return -1;
    /* Slurm formats times by this variable. */
    setenv("SLURM_TIME_FORMAT", "standard", 1);
    for (int i = 0; i < s->n; i++) {
        if (predict(s, &s->at[i], err) < 0)
            return -1;
        ask_slurm(s, &s->at[i]);
    }
    qsort(s->at, (size_t)s->n, sizeof(s->at[0]), compare);
    return 0;
}

int plait_plan_submit(const struct plan_job *job)
{
    struct shapes *s = calloc(1, sizeof(*s));
    struct plait_error err;
    int rc;

    if (!s)
        return plait_cmd_failed("out of memory");
    s->job = job;
    if (find_shapes(s, &err) < 0)
        rc = plait_cmd_misused("plan: %s", err.text);
    else if (job->options.json)
        rc = plait_cmd_json(to_json(s));
    else {
        print_text(s);
        rc = s->at[0].why[0] ? PLAIT_EXIT_FAILED : PLAIT_EXIT_GOOD;
    }
    free(s);
    return rc;
}
