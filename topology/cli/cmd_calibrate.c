/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/calibrate.h"
#include "topology/cli/commands.h"
#include "topology/job/site.h"

/* plait calibrate: the cost model's constants from runs of one's own. */

struct calibration {
    struct calibrate_runs runs;
    const char *out, *gpu_name, *site_file;
    struct plait_gpu_type before, after;
    int fitted; /* constants, the first ones of the table */
    double least[CALIBRATE_CONSTANTS], most[CALIBRATE_CONSTANTS];
};

static void print_help(void)
{
    printf(
        "Usage: plait calibrate RUN... [OPTION...]\n\n"
        "Fit the constants of plait estimate to measured steps, and print "
        "them as a site\nfile.\n\n"
        "  RUN                  metrics of a run of plait-train (FILE.jsonl, "
        "with\n"
        "                       FILE.jsonl.starts beside it), or a table "
        "FILE.csv:\n"
        "                       columns model (a file), step_s and keys such "
        "as\n"
        "                       parallel.tp or train.micro_batch\n"
        "  --out FILE           write them there instead\n"
        "  --gpu-type TYPE      whose figures are fitted (that of the runs)\n"
        "  --site FILE          ... as this site file has them\n"
        "  --help               print this\n");
}

static const struct {
    const char *name; /* in a site file */
    double unit, most;
} constants[CALIBRATE_CONSTANTS] = {
    {"matmul", 1, 1}, {"layer_us", 1e-6, 1}, {"stream", 1, 1}};

/* The products' rates move together: few runs tell them apart. */
static void scale_constant(struct plait_gpu_type *gpu, int k, double by)
{
    const struct plait_gpu_type was = *gpu;

    if (k == 1)
        gpu->layer_s = fmin(1, was.layer_s * by);
    else if (k == 2)
        gpu->stream = fmin(1, was.stream * by);
    if (k != 0)
        return;
    gpu->matmul = fmin(1, was.matmul * by);
    gpu->matmul8 = fmin(1, was.matmul8 * by);
    gpu->attention = fmin(1, was.attention * by);
}

static double constant_of(const struct plait_gpu_type *gpu, int k)
{
    return k == 0 ? gpu->matmul : k == 1 ? gpu->layer_s : gpu->stream;
}

/* Of all runs but `without`: squares of log(predicted / measured). */
static double error_of(const struct calibrate_runs *runs, int without,
                       const struct plait_gpu_type *gpu)
{
    double sum = 0;

    for (int i = 0; i < runs->n; i++) {
        double ratio = i == without ? 0
                                    : log(calibrate_predict(&runs->at[i], gpu) /
                                          runs->at[i].step_s);

        sum += ratio * ratio;
    }
    return sum;
}

static void fit(const struct calibrate_runs *runs, int without, int fitted,
                struct plait_gpu_type *gpu)
{
    double best = error_of(runs, without, gpu), step = 2;

    for (int round = 0; round < 3000 && step > 1.0001; round++) {
        int moved = 0;

        for (int k = 0; k < 2 * fitted; k++) {
            struct plait_gpu_type tried = *gpu;
            double error;

            scale_constant(&tried, k / 2, k % 2 ? step : 1 / step);
            error = error_of(runs, without, &tried);
            if (error < best) {
                best = error;
                *gpu = tried;
                moved = 1;
            }
        }
        if (!moved)
            step = pow(step, 0.7);
    }
}

/* The spread of each: what it is with one run left out. */
static void set_spread(struct calibration *c)
{
    for (int k = 0; k < c->fitted; k++)
        c->least[k] = c->most[k] = constant_of(&c->after, k);
    for (int i = 0; i < c->runs.n && c->runs.n > c->fitted; i++) {
        struct plait_gpu_type gpu = c->before;

        fit(&c->runs, i, c->fitted, &gpu);
        for (int k = 0; k < c->fitted; k++) {
            c->least[k] = fmin(c->least[k], constant_of(&gpu, k));
            c->most[k] = fmax(c->most[k], constant_of(&gpu, k));
        }
    }
}

static double mean_error(const struct calibration *c,
                         const struct plait_gpu_type *gpu)
{
    double sum = 0;

    for (int i = 0; i < c->runs.n; i++)
        sum += fabs(
            calibrate_predict(&c->runs.at[i], gpu) / c->runs.at[i].step_s - 1);
    return 100 * sum / c->runs.n;
}

/* How far each constant spreads. */
static void print_spread(const struct calibration *c, FILE *out)
{
    for (int k = 0; k < c->fitted && c->runs.n > c->fitted; k++)
        fprintf(out, "# %s: %.4g to %.4g with one run left out\n",
                constants[k].name, c->least[k] / constants[k].unit,
                c->most[k] / constants[k].unit);
}

static void print_site(const void *arg, FILE *out)
{
    const struct calibration *c = arg;

    fprintf(out,
            "# plait calibrate, %d run%s: mean error %.1f %% before, %.1f %% "
            "after\n",
            c->runs.n, c->runs.n == 1 ? "" : "s", mean_error(c, &c->before),
            mean_error(c, &c->after));
    for (int i = 0; i < c->runs.n; i++) {
        const struct calibrate_run *r = &c->runs.at[i];

        fprintf(out, "# %s: %.4g s a step, %.4g s before, %.4g s after\n",
                r->name, r->step_s, calibrate_predict(r, &c->before),
                calibrate_predict(r, &c->after));
    }
    print_spread(c, out);
    fprintf(out, "gpu_type: %s\ngpu_types:\n", c->after.name);
    plait_site_print_type(out, &c->after);
}

static int calibrate(struct calibration *c, char **files, int n,
                     struct plait_error *err)
{
    const char *name;

    for (int i = 0; i < n; i++)
        if (calibrate_read(&c->runs, files[i], err) < 0)
            return -1;
    name = c->gpu_name ? c->gpu_name : c->runs.gpu;
    if (plait_cmd_gpu_type(c->site_file, *name ? name : NULL, &c->before, err) <
        0)
        return -1;
    for (int i = 0; i < c->runs.n; i++)
        if (calibrate_check(&c->runs.at[i], &c->before, err) < 0)
            return -1;
    c->fitted =
        c->runs.n < CALIBRATE_CONSTANTS ? c->runs.n : CALIBRATE_CONSTANTS;
    c->after = c->before;
    fit(&c->runs, -1, c->fitted, &c->after);
    set_spread(c);
    return 0;
}

int plait_cmd_calibrate(int argc, char **argv)
{
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'},
        {"gpu-type", required_argument, NULL, 'g'},
        {"site", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct calibration c = {.out = "-"};
    struct plait_error err;
    int opt, rc;

    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case 'o':
            c.out = optarg;
            break;
        case 'g':
            c.gpu_name = optarg;
            break;
        case 's':
            c.site_file = optarg;
            break;
        case 'h':
            print_help();
            return PLAIT_EXIT_GOOD;
        default:
            return PLAIT_EXIT_USAGE; /* getopt_long has said why */
        }
    }
    if (optind == argc)
        return plait_cmd_misused("calibrate: name the metrics of a run, or a "
                                 "table of measurements");
    rc = plait_cmd_check_gpu_type(c.site_file, c.gpu_name);
    if (rc >= 0)
        return rc;
    rc = calibrate(&c, argv + optind, argc - optind, &err);
    rc = rc < 0 ? plait_cmd_failed("%s", err.text)
                : plait_cmd_write(c.out, print_site, &c);
    calibrate_release(&c.runs);
    return rc;
}
