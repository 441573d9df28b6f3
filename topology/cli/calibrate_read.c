/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what plait calibrate fits to: metrics of runs, and tables of
 * figures. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/calibrate.h"
#include "topology/job/foreign_config.h"

enum { SETS = 24, LINE = 4096, STEPS_MOST = 1 << 20 };

static struct calibrate_run *add_run(struct calibrate_runs *runs,
                                     struct plait_error *err)
{
    struct calibrate_run *more =
        realloc(runs->at, (size_t)(runs->n + 1) * sizeof(*more));

    if (!more) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    runs->at = more;
    memset(&more[runs->n], 0, sizeof(*more));
    return &more[runs->n++];
}

struct sets {
    char text[SETS][96];
    const char *at[SETS];
    int n;
};

static void add_set(struct sets *s, const char *key, const char *value)
{
    if (s->n == SETS || !*value)
        return;
    snprintf(s->text[s->n], sizeof(s->text[0]), "%.40s=%.50s", key, value);
    s->at[s->n] = s->text[s->n];
    s->n++;
}

/* Sizes that the file leaves open follow from the run. */
static int set_layout(struct calibrate_run *run, int ranks,
                      struct plait_error *err)
{
    run->layout = run->config->parallel.layout;
    return plait_layout_resolve(
        &run->layout, ranks ? ranks : plait_layout_given(&run->layout), err);
}

/* ---- metrics of plait-train ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* From the last line of a start, which has the times of parts of its steps. */
static void set_parts(struct calibrate_run *run, const json_t *line)
{
    const json_t *parts = json_object_get(line, "measured_s");
    double step = json_number_value(json_object_get(parts, "step"));

    if (!(step > 0))
        return;
    run->products =
        json_number_value(json_object_get(parts, "products")) / step;
    run->attention =
        json_number_value(json_object_get(parts, "attention")) / step;
}

/* The median of the steps without the first fifth, in which memory is touched
 * and graphs are captured. */
static double median_step(FILE *f, struct calibrate_run *run)
{
    double *steps = NULL, median = 0;
    size_t n = 0, first;
    json_t *line;

    while (n < STEPS_MOST &&
           (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        json_t *value = json_object_get(line, "step_s");

        if (json_is_number(value)) {
            double *more = realloc(steps, (n + 1) * sizeof(*steps));

            if (more) {
                steps = more;
                steps[n++] = json_number_value(value);
            }
        }
        set_parts(run, line);
        json_decref(line);
    }
    first = (n + 4) / 5;
    if (n > first) {
        qsort(steps + first, n - first, sizeof(*steps), compare);
        median = steps[first + (n - first) / 2];
    }
    free(steps);
    return median;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static void add_number(struct sets *s, const char *key, const json_t *object,
                       const char *name)
{
    char text[24];

    if (!json_is_integer(json_object_get(object, name)))
        return;
    snprintf(text, sizeof(text), "%lld",
             json_integer_value(json_object_get(object, name)));
    add_set(s, key, text);
}

/* For a run on CPUs. */
static void set_processors(struct calibrate_run *run, const json_t *start,
                           const json_t *plan)
{
    const json_t *nodes = json_object_get(plan, "nodes");
    size_t first = 0, i;
    json_t *node;

    if (strcmp(text_of(start, "device"), "cpu") != 0)
        return;
    json_array_foreach(nodes, i, node) first += json_integer_value(node) == 0;
    run->node_ranks = first ? (int)first : 1;
    run->threads = (int)json_integer_value(json_object_get(plan, "threads"));
    run->cores = (int)json_integer_value(json_object_get(plan, "cores"));
    run->peak = json_number_value(json_object_get(start, "peak_flops"));
    run->own_time = json_is_true(json_object_get(plan, "own_time"));
}

/* Describe the run by the last line of FILE.starts. */
static int set_run(struct calibrate_runs *runs, struct calibrate_run *run,
                   const char *path, const json_t *start,
                   struct plait_error *err)
{
    const json_t *plan = json_object_get(start, "plan");
    const char *config = text_of(start, "config");
    const char *gpu = text_of(plan, "gpu_type");
    struct sets s = {.n = 0};
    char key[24];

    for (int i = 0; i < PLAIT_NAXES; i++) {
        snprintf(key, sizeof(key), "parallel.%s", plait_axis_names[i]);
        add_number(&s, key, start, plait_axis_names[i]);
    }
    add_number(&s, "parallel.zero", plan, "zero");
    add_number(&s, "train.micro_batch", plan, "micro_batch");
    add_number(&s, "train.global_batch", plan, "global_batch");
    add_set(&s, "train.precision", text_of(plan, "precision"));
    add_set(&s, "parallel.schedule", text_of(plan, "schedule"));
    set_processors(run, start, plan);
    if (!*gpu && strcmp(text_of(start, "device"), "cpu") == 0)
        gpu = "cpu";
    snprintf(runs->gpu, sizeof(runs->gpu), "%s", gpu);
    run->config =
        plait_job_config_parse(path, config, strlen(config), s.at, s.n, err);
    return run->config ? set_layout(run, 0, err) : -1;
}

static json_t *last_start(const char *path)
{
    json_t *start = NULL, *next;
    char *name;
    FILE *f;

    if (asprintf(&name, "%s.starts", path) < 0)
        return NULL;
    f = fopen(name, "r");
    free(name);
    if (!f)
        return NULL;
    while ((next = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        json_decref(start);
        start = next;
    }
    fclose(f);
    return start;
}

static int read_metrics(struct calibrate_runs *runs, const char *path,
                        struct plait_error *err)
{
    json_t *start = last_start(path);
    struct calibrate_run *run = start ? add_run(runs, err) : NULL;
    FILE *f;
    int rc = -1;

    if (!start)
        return plait_errorf(err,
                            "%.200s.starts: missing, or without the start of "
                            "a run of plait-train's",
                            path);
    if (run)
        rc = set_run(runs, run, path, start, err);
    json_decref(start);
    if (rc < 0)
        return -1;
    snprintf(run->name, sizeof(run->name), "%.79s", path);
    f = fopen(path, "r");
    if (!f)
        return plait_errorf(err, "%.200s: %s", path, strerror(errno));
    run->step_s = median_step(f, run);
    fclose(f);
    return run->step_s > 0
               ? 0
               : plait_errorf(err, "%.200s: fewer than two steps", path);
}

/* ---- tables ---- */

static int read_row(struct calibrate_runs *runs, const char *path, int number,
                    char *head, char *line, struct plait_error *err)
{
    struct calibrate_run *run = add_run(runs, err);
    enum plait_framework framework = PLAIT_FRAMEWORK_PLAIT;
    struct sets s = {.n = 0};
    const char *model = "";
    char *key, *value;
    int gpus = 0;

    if (!run)
        return -1;
    snprintf(run->name, sizeof(run->name), "%.60s:%d", path, number);
    while ((key = strsep(&head, ",")) && (value = strsep(&line, ","))) {
        if (strcmp(key, "model") == 0)
            model = value;
        else if (strcmp(key, "step_s") == 0)
            run->step_s = atof(value);
        else if (strcmp(key, "gpus") == 0)
            gpus = atoi(value);
        else
            add_set(&s, key, value);
    }
    errno = EINVAL;
    if (!*model || !(run->step_s > 0))
        return plait_errorf(err,
                            "%.200s:%d: needs a model and a step_s above "
                            "0",
                            path, number);
    run->config =
        plait_foreign_config_create(model, s.at, s.n, &framework, err);
    if (!run->config)
        return -1;
    run->config->framework = framework;
    return set_layout(run, gpus, err);
}

static int read_table(struct calibrate_runs *runs, const char *path,
                      struct plait_error *err)
{
    char head[LINE] = "", line[LINE], copy[LINE];
    FILE *f = fopen(path, "r");
    int rc = 0;

    if (!f)
        return plait_errorf(err, "%.200s: %s", path, strerror(errno));
    for (int n = 1; rc == 0 && fgets(line, sizeof(line), f); n++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!line[0] || line[0] == '#')
            continue;
        memcpy(copy, head, sizeof(copy));
        if (!head[0])
            memcpy(head, line, sizeof(head));
        else
            rc = read_row(runs, path, n, copy, line, err);
    }
    fclose(f);
    return rc;
}

int calibrate_read(struct calibrate_runs *runs, const char *path,
                   struct plait_error *err)
{
    size_t n = strlen(path);

    if (n > 4 && strcmp(path + n - 4, ".csv") == 0)
        return read_table(runs, path, err);
    return read_metrics(runs, path, err);
}

void calibrate_release(struct calibrate_runs *runs)
{
    for (int i = 0; i < runs->n; i++)
        plait_job_config_destroy(runs->at[i].config);
    free(runs->at);
    memset(runs, 0, sizeof(*runs));
}

/* The type, as the ranks of the run share it. */
static struct plait_gpu_type type_of(const struct calibrate_run *run,
                                     const struct plait_gpu_type *gpu)
{
    struct plait_gpu_type type = *gpu;

    if (gpu->cores > 0 && run->cores > 0) {
        plait_gpu_type_set_cores(&type, run->cores);
        type.per_node = type.domain = run->node_ranks;
        type.threads = run->threads;
    }
    return type;
}

int calibrate_check(const struct calibrate_run *run,
                    const struct plait_gpu_type *gpu, struct plait_error *err)
{
    struct plait_gpu_type type = type_of(run, gpu);
    struct plait_error why;
    struct plait_estimate e;

    if (plait_estimate(run->config, &run->layout, &type, &e, &why) == 0)
        return 0;
    return plait_errorf(err, "%s: %.200s", run->name, why.text);
}

void calibrate_estimate(const struct calibrate_run *run,
                        const struct plait_gpu_type *gpu,
                        struct plait_estimate *e)
{
    struct plait_gpu_type type = type_of(run, gpu);

    if (plait_estimate(run->config, &run->layout, &type, e, NULL) < 0)
        *e = (struct plait_estimate){.step_s = 1e9};
}

double calibrate_predict(const struct calibrate_run *run,
                         const struct plait_gpu_type *gpu)
{
    struct plait_estimate e;

    calibrate_estimate(run, gpu, &e);
    return e.step_s;
}
