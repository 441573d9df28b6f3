/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/calibrate.h"
#include "topology/cli/commands.h"
#include "topology/job/site.h"

/* plait calibrate: fit the cost model's constants to the user's own runs. */

struct calibration {
    struct calibrate_runs runs, others; /* fitted to; only compared with */
    const char *out, *gpu_name, *site_file;
    struct plait_gpu_type before, after;
    const char *like; /* of a type of the site's own */
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
        "  --check RUN          hold the result against this run, which is "
        "not fitted;\n"
        "                       may be given more than once\n"
        "  --out FILE           write them there instead\n"
        "  --gpu-type TYPE      whose figures are fitted (that of the runs)\n"
        "  --site FILE          ... as this site file has them\n"
        "  --help               print this\n");
}

/* The spread of each constant: its values when one run is left out. */
static void set_spread(struct calibration *c)
{
    for (int k = 0; k < CALIBRATE_CONSTANTS; k++)
        c->least[k] = c->most[k] = calibrate_constant(&c->after, k);
    for (int i = 0; i < c->runs.n && c->runs.n > 1; i++) {
        struct plait_gpu_type gpu = c->before;

        calibrate_fit(&c->runs, i, &gpu);
        for (int k = 0; k < CALIBRATE_CONSTANTS; k++) {
            c->least[k] = fmin(c->least[k], calibrate_constant(&gpu, k));
            c->most[k] = fmax(c->most[k], calibrate_constant(&gpu, k));
        }
    }
}

static double mean_error(const struct calibrate_runs *runs,
                         const struct plait_gpu_type *gpu)
{
    double sum = 0;

    for (int i = 0; i < runs->n; i++)
        sum +=
            fabs(calibrate_predict(&runs->at[i], gpu) / runs->at[i].step_s - 1);
    return 100 * sum / runs->n;
}

/* A run whose products reach less than this share of another run's rate was
 * disturbed. */
#define ALONE 0.75

static bool is_disturbed(const struct calibration *c,
                         const struct calibrate_run *run)
{
    return calibrate_share(run, &c->runs, &c->others) < ALONE;
}

/* Print the error on runs that had the machine to themselves. */
static void print_quiet(const struct calibration *c, FILE *out)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < c->others.n; i++) {
        const struct calibrate_run *r = &c->others.at[i];

        if (is_disturbed(c, r))
            continue;
        sum += fabs(calibrate_predict(r, &c->after) / r->step_s - 1);
        n++;
    }
    if (n && n < c->others.n)
        fprintf(out, "# %d of them had their cores alone: mean error %.1f %%\n",
                n, 100 * sum / n);
}

/* How far each constant spreads. */
static void print_spread(const struct calibration *c, FILE *out)
{
    for (int k = 0; k < CALIBRATE_CONSTANTS && c->runs.n > 1; k++) {
        const char *name = calibrate_constant_name(&c->after, k);

        if (name)
            fprintf(out, "# %s: %.4g to %.4g with one run left out\n", name,
                    c->least[k], c->most[k]);
    }
}

static void print_runs(const struct calibration *c,
                       const struct calibrate_runs *runs, FILE *out)
{
    for (int i = 0; i < runs->n; i++) {
        const struct calibrate_run *r = &runs->at[i];
        double after = calibrate_predict(r, &c->after);

        fprintf(out,
                "# %s: %.4g s a step, %.4g s before, %.4g s after (%+.1f %%)\n",
                r->name, r->step_s, calibrate_predict(r, &c->before), after,
                100 * (after / r->step_s - 1));
        if (is_disturbed(c, r))
            fprintf(out,
                    "#   its products had %.0f %% of another run's rate: other "
                    "processes were on its cores, measure it again\n",
                    100 * calibrate_share(r, &c->runs, &c->others));
    }
}

static void print_site(const void *arg, FILE *out)
{
    const struct calibration *c = arg;

    fprintf(out,
            "# plait calibrate, %d run%s: mean error %.1f %% before, %.1f %% "
            "after\n",
            c->runs.n, c->runs.n == 1 ? "" : "s",
            mean_error(&c->runs, &c->before), mean_error(&c->runs, &c->after));
    print_runs(c, &c->runs, out);
    if (c->others.n)
        fprintf(out,
                "# %d run%s not fitted to: mean error %.1f %% before, %.1f %% "
                "after\n",
                c->others.n, c->others.n == 1 ? "" : "s",
                mean_error(&c->others, &c->before),
                mean_error(&c->others, &c->after));
    print_quiet(c, out);
    print_runs(c, &c->others, out);
    print_spread(c, out);
    fprintf(out, "gpu_type: %s\ngpu_types:\n", c->after.name);
    plait_site_print_type(out, &c->after, c->like);
}

static int check_runs(const struct calibrate_runs *runs,
                      const struct plait_gpu_type *gpu, struct plait_error *err)
{
    for (int i = 0; i < runs->n; i++)
        if (calibrate_check(&runs->at[i], gpu, err) < 0)
            return -1;
    return 0;
}

static int calibrate(struct calibration *c, char **files, int n,
                     struct plait_error *err)
{
    const char *name;

    for (int i = 0; i < n; i++)
        if (calibrate_read(&c->runs, files[i], err) < 0)
            return -1;
    name = c->gpu_name ? c->gpu_name : c->runs.gpu;
    if (plait_cmd_gpu_type(c->site_file, *name ? name : NULL, &c->before,
                           &c->like, err) < 0)
        return -1;
    if (check_runs(&c->runs, &c->before, err) < 0 ||
        check_runs(&c->others, &c->before, err) < 0)
        return -1;
    calibrate_processors(&c->runs, &c->before);
    c->after = c->before;
    calibrate_fit(&c->runs, -1, &c->after);
    set_spread(c);
    return 0;
}

int plait_cmd_calibrate(int argc, char **argv)
{
    static const struct option options[] = {
        {"check", required_argument, NULL, 'c'},
        {"out", required_argument, NULL, 'o'},
        {"gpu-type", required_argument, NULL, 'g'},
        {"site", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct calibration c = {.out = "-"};
    struct plait_error err;
    int opt, rc;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            if (calibrate_read(&c.others, optarg, &err) < 0)
                goto error;
            break;
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
            return plait_cmd_refuse_option(options, "h", argc,
                                           argv); /* getopt_long has said why */
        }
    }
    if (optind == argc)
        return plait_cmd_misused("calibrate: name the metrics of a run, or a "
                                 "table of measurements");
    rc = plait_cmd_check_gpu_type(c.site_file, c.gpu_name);
    if (rc >= 0)
        return rc;
    if (calibrate(&c, argv + optind, argc - optind, &err) < 0)
        goto error;
    rc = plait_cmd_write(c.out, print_site, &c);
    calibrate_release(&c.runs);
    calibrate_release(&c.others);
    return rc;
error:
    calibrate_release(&c.runs);
    calibrate_release(&c.others);
    return plait_cmd_failed("%s", err.text);
}
