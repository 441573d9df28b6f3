/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/cmd_simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "topology/cli/commands.h"
#include "topology/job/stage.h"
#include "topology/predict/estimate.h"

/* plait simulate: one training step, as a timeline. */

enum { SLOW_MOST = 16, COLUMNS = 100 };

static void print_help(void)
{
    printf("Usage: plait simulate --model FILE [OPTION...]\n\n"
           "One training step of a layout as a timeline: what each rank "
           "computes and waits for.\n\n"
           "  --model FILE         the model and how it is trained, "
           "plait.yaml(5)\n"
           "  --gpus N             how many GPUs (the product of the sizes)\n"
           "  --gpu-type TYPE      one of these:\n      %s\n"
           "  --site FILE          the site's own figures, as plait probe "
           "writes them\n"
           "  --tp=N --cp=N --ep=N --pp=N --dp=N|auto\n",
           plait_gpu_type_names());
    model_options_print_help();
    printf("  --slow rank=R:F      rank R computes F times as slowly\n"
           "  --slow link=A-B:F    the link between ranks A and B is F times "
           "slower\n"
           "  --json               print one JSON document\n"
           "  --svg FILE           draw the timeline\n"
           "  --help               print this\n");
}

static const struct option options[] = {MODEL_OPTIONS,
                                        {"slow", required_argument, NULL, 'l'},
                                        {"svg", required_argument, NULL, 'v'},
                                        {0}};

static int parse_option(void *arg, int opt, struct plait_error *err)
{
    struct simulate_job *job = arg;

    if (opt == 'v') {
        job->svg_file = optarg;
    } else if (opt == 'l') {
        if (job->nslow == SLOW_MOST)
            return plait_errorf(err, "--slow: more than %d of them", SLOW_MOST);
        job->slow[job->nslow++] = optarg;
    } else {
        print_help();
    }
    return 0;
}

/* --- what is slow --- */

/* One --slow: ranks[1] is -1 for a rank, else the other end of a link. */
struct slow {
    int ranks[2];
    double factor;
};

static int parse_slow(const char *text, int world, struct slow *slow,
                      struct plait_error *err)
{
    int used = 0;

    slow->ranks[1] = -1;
    if (sscanf(text, "rank=%9d:%lf%n", &slow->ranks[0], &slow->factor, &used) !=
            2 &&
        sscanf(text, "link=%9d-%9d:%lf%n", &slow->ranks[0], &slow->ranks[1],
               &slow->factor, &used) != 3)
        used = 0;
    if (!used || text[used] || slow->ranks[0] < 0 || slow->ranks[1] < -1 ||
        !(slow->factor >= 1e-3 && slow->factor <= 1e6))
        return plait_errorf(err,
                            "--slow %.60s: must be rank=R:FACTOR or "
                            "link=A-B:FACTOR, as in rank=3:1.5",
                            text);
    for (int i = 0; i < 2; i++)
        if (slow->ranks[i] >= world)
            return plait_errorf(err, "--slow %.60s: ranks are 0 to %d", text,
                                world - 1);
    return 0;
}

/* The axis along which two ranks communicate, PLAIT_NAXES if they do not. */
static enum plait_axis axis_between(const struct plait_layout *layout,
                                    const struct plait_coord *a,
                                    const struct plait_coord *b, int around)
{
    static const enum plait_axis axes[] = {PLAIT_TP, PLAIT_CP, PLAIT_DP,
                                           PLAIT_PP};
    enum plait_axis found = PLAIT_NAXES;

    for (int i = 0; i < 4; i++) {
        if (a->at[axes[i]] == b->at[axes[i]])
            continue;
        if (found != PLAIT_NAXES)
            return PLAIT_NAXES;
        found = axes[i];
    }
    if (found == PLAIT_PP) {
        int apart = abs(a->at[PLAIT_PP] - b->at[PLAIT_PP]);

        if (apart > 1 && !(around && apart == layout->size[PLAIT_PP] - 1))
            return PLAIT_NAXES;
    }
    return found;
}

/* A slow link slows its whole group, and the stage that the group is in. */
static void slow_stage(struct simulate_job *job, int rank, enum plait_axis axis,
                       double factor)
{
    struct plait_simulation_request *r = &job->request;

    if (axis == PLAIT_DP || axis == PLAIT_CP)
        r->gather_updated *= factor;
    for (int c = 0; c < r->chunks; c++) {
        struct plait_stage_time *t = &job->times[c * r->stages + rank];

        t->forward_comm[axis] *= factor;
        t->backward_comm[axis] *= factor;
        if (axis == PLAIT_DP || axis == PLAIT_CP) {
            t->reduce *= factor;
            t->gather *= factor;
        }
    }
}

static int slow_down(struct simulate_job *job, const char *text,
                     struct plait_error *err)
{
    const struct plait_layout *layout = &job->model.layout;
    struct plait_coord a, b;
    enum plait_axis axis;
    struct slow slow;
    int pp = layout->size[PLAIT_PP];

    if (parse_slow(text, plait_layout_world(layout), &slow, err) < 0)
        return -1;
    plait_layout_coord(layout, slow.ranks[0], &a);
    if (slow.ranks[1] < 0) {
        job->slow_rank[a.at[PLAIT_PP]] *= slow.factor;
        return 0;
    }
    plait_layout_coord(layout, slow.ranks[1], &b);
    axis = axis_between(layout, &a, &b, job->request.chunks > 1);
    if (axis == PLAIT_NAXES)
        return plait_errorf(err,
                            "--slow %.60s: these two do not communicate; they "
                            "must be neighbours along one of tp, cp, dp and "
                            "pp",
                            text);
    if (axis == PLAIT_PP)
        job->slow_link[pp == 2 ? 0
                       : (a.at[PLAIT_PP] + 1) % pp == b.at[PLAIT_PP]
                           ? a.at[PLAIT_PP]
                           : b.at[PLAIT_PP]] *= slow.factor;
    else
        slow_stage(job, a.at[PLAIT_PP], axis, slow.factor);
    return 0;
}

/* --- the simulation --- */

static int prepare_request(struct simulate_job *job, struct plait_error *err)
{
    int pp, chunks;

    if (model_job_load(&job->model, &job->options, err) < 0)
        return -1;
    pp = job->model.layout.size[PLAIT_PP];
    chunks = plait_model_chunks(&job->model.config->parallel);
    job->times = calloc((size_t)pp * chunks, sizeof(*job->times));
    job->slow_rank = calloc(pp, sizeof(*job->slow_rank));
    job->slow_link = calloc(pp, sizeof(*job->slow_link));
    if (!job->times || !job->slow_rank || !job->slow_link)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < pp; i++)
        job->slow_rank[i] = job->slow_link[i] = 1;
    if (plait_estimate(job->model.config, &job->model.layout, &job->model.gpu,
                       &job->estimate, err) < 0)
        return -1;
    return plait_simulation_request_set(&job->request, job->times,
                                        job->model.config, &job->model.layout,
                                        &job->model.gpu, err);
}

static int run_simulation(struct simulate_job *job, struct plait_error *err)
{
    struct plait_simulation *plain = NULL;

    if (job->nslow) {
        plain = plait_simulation_create(&job->request, err);
        if (!plain)
            return -1;
        job->undisturbed = plain->step;
        plait_simulation_destroy(plain);
    }
    for (int i = 0; i < job->nslow; i++)
        if (slow_down(job, job->slow[i], err) < 0)
            return -1;
    job->request.slow_rank = job->slow_rank;
    job->request.slow_link = job->slow_link;
    job->simulation = plait_simulation_create(&job->request, err);
    return job->simulation ? 0 : -1;
}

/* --- output --- */

double simulate_ideal_bubble(const struct plait_simulation *s)
{
    double p = s->stages, m = s->microbatches, v = s->chunks;

    switch (s->schedule) {
    case PLAIT_SCHEDULE_NAIVE:
        return (p - 1) / p;
    case PLAIT_SCHEDULE_ZB_H1: /* forward and both gradients equal */
        return (p - 1) / (3 * m + p - 1);
    default:
        return (p - 1) / (v * m + p - 1);
    }
}

static void print_svg(const void *job, FILE *out)
{
    simulate_print_svg(job, out);
}

static int terminal_columns(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 40)
        return size.ws_col;
    return COLUMNS;
}

static int write_output(const struct simulate_job *job)
{
    if (job->svg_file)
        return plait_cmd_write(job->svg_file, print_svg, job);
    if (job->options.json)
        return plait_cmd_json(simulate_to_json(job));
    simulate_print_text(job, terminal_columns(), stdout);
    return PLAIT_EXIT_GOOD;
}

int plait_cmd_simulate(int argc, char **argv)
{
    struct simulate_job job = {.nslow = 0};
    struct plait_error err;
    int rc;

    model_options_init(&job.options);
    rc = model_options_read(&job.options, "simulate", argc, argv, options,
                            parse_option, &job);
    if (rc >= 0)
        return rc;
    if (!job.options.model_file)
        return plait_cmd_misused("simulate: --model is missing");
    if (job.options.json && job.svg_file)
        return plait_cmd_misused("simulate: give one of --json and --svg");
    if (prepare_request(&job, &err) < 0 || run_simulation(&job, &err) < 0)
        rc = plait_cmd_ended(model_options_status(&job.options), &err);
    else
        rc = write_output(&job);
    plait_simulation_destroy(job.simulation);
    model_job_release(&job.model);
    free(job.times);
    free(job.slow_rank);
    free(job.slow_link);
    return rc;
}
