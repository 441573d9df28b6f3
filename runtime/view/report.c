/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/view/history.h"
#include "runtime/view/page.h"
#include "runtime/view/predicted.h"
#include "runtime/view/timeline.h"
#include "topology/base/option_words.h"
#include "topology/job/site.h"

/* plait-report: turns metrics files into one page of HTML. */

#define PAGE_POINTS 30000 /* of all curves: keeps the page below 1 MB */
#define CURVE_POINTS 1200
#define DATA_MARK "@DATA@"
#define PAGE_BEGIN "<!DOCTYPE html>" /* of page.html */

static const char help[] =
    "usage: plait-report DIR|FILE... --out F.html [--gpu-type TYPE]\n"
    "Draw what plait-train logged (log.metrics) as a page of HTML that needs\n"
    "nothing else: one run, or several compared.\n"
    "\n"
    "  --out F.html     the page\n"
    "  --gpu-type TYPE  the GPUs to predict for (those of the run)\n"
    "  --help, --version\n";

/* -- curves ---------------------------------------------------------------- */

static void add_point(json_t *points, double x, double y)
{
    char text[32];

    /* Six digits are more than a page can show. */
    snprintf(text, sizeof(text), "%.6g", y);
    json_array_append_new(points, json_real(x));
    json_array_append_new(points, json_real(strtod(text, NULL)));
}

/* Add the points with the smallest and the largest value of rows begin to end -
 * 1, in their order. */
static void add_bucket(json_t *points, const double *x, const double *y,
                       size_t begin, size_t end)
{
    size_t low = end, high = end, i;

    for (i = begin; i < end; i++) {
        if (!isfinite(y[i]))
            continue;
        if (low == end || y[i] < y[low])
            low = i;
        if (high == end || y[i] > y[high])
            high = i;
    }
    if (low == end)
        return;
    if (low == high) {
        add_point(points, x[low], y[low]);
        return;
    }
    i = low < high ? low : high;
    add_point(points, x[i], y[i]);
    i = low < high ? high : low;
    add_point(points, x[i], y[i]);
}

/* [x, y, x, y, ...]. A curve with few values, such as one of evaluations, keeps
 * all. */
static json_t *make_curve(const struct plait_history *h, const double *y,
                          size_t points)
{
    const double *x = plait_history_column(h, "step");
    json_t *curve = json_array();
    size_t n = 0, buckets = points / 2;

    for (size_t i = 0; i < h->nsteps; i++)
        n += isfinite(y[i]) != 0;
    if (n <= points)
        buckets = h->nsteps;
    for (size_t i = 0; curve && i < buckets; i++)
        add_bucket(curve, x, y, i * h->nsteps / buckets,
                   (i + 1) * h->nsteps / buckets);
    return curve;
}

static double last_time(const struct plait_history *h)
{
    const double *at = plait_history_column(h, "time");

    return at && isfinite(at[h->nsteps - 1]) ? at[h->nsteps - 1] : 0;
}

static double sum_of(const double *at, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(at[i]))
            sum += at[i];
    return sum;
}

/* The timeline of the last start, from where its trace may be. */
static json_t *find_timeline(const json_t *start)
{
    const json_t *plan = json_object_get(start, "plan");
    const char *profile = json_string_value(json_object_get(plan, "profile"));
    const char *dir = json_string_value(json_object_get(plan, "dir"));
    json_t *timeline;
    char *path;

    if (!profile)
        return json_null();
    if (*profile == '/' || !dir || asprintf(&path, "%s/%s", dir, profile) < 0)
        path = strdup(profile);
    timeline = path ? plait_timeline(path) : NULL;
    free(path);
    return timeline ? timeline : json_null();
}

static json_t *make_run(const struct plait_history *h, size_t points,
                        const char *gpu_type)
{
    const json_t *start =
        json_array_get(h->starts, json_array_size(h->starts) - 1);
    json_t *curves = json_object(), *sums = json_object();
    const double *step = plait_history_column(h, "step");

    for (size_t i = 0; i < h->ncolumns; i++) {
        const struct plait_column *c = &h->columns[i];

        json_object_set_new(sums, c->name, json_real(sum_of(c->at, h->nsteps)));
        if (strcmp(c->name, "step") && strcmp(c->name, "time"))
            json_object_set_new(curves, c->name, make_curve(h, c->at, points));
    }
    return json_pack(
        "{s:o, s:I, s:f, s:f, s:f, s:O, s:o, s:o, s:o, s:o}", "name",
        plait_report_text(h->path), "lines", (json_int_t)h->nsteps, "first",
        step[0], "last", step[h->nsteps - 1], "end", last_time(h), "starts",
        h->starts, "sums", sums, "curves", curves, "predicted",
        plait_predicted(start, gpu_type), "timeline", find_timeline(start));
}

static json_t *make_data(struct plait_history *const *runs, size_t nruns,
                         const char *gpu_type)
{
    json_t *list = json_array();
    size_t curves = 0, points;

    for (size_t i = 0; i < nruns; i++)
        curves += runs[i]->ncolumns;
    points = PAGE_POINTS / curves;
    points = points > CURVE_POINTS ? CURVE_POINTS : points < 40 ? 40 : points;
    for (size_t i = 0; i < nruns; i++) {
        if (json_array_append_new(list, make_run(runs[i], points, gpu_type)) <
            0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:s, s:o}", "version", PACKAGE_VERSION, "runs", list);
}

/* -- the page -------------------------------------------------------------- */

/* In a script element no text may look like a tag. */
static int print_data(FILE *out, const json_t *data)
{
    char *text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(12));

    if (!text)
        return -1;
    for (const char *at = text; *at; at++) {
        if (*at == '<')
            fputs("\\u003c", out);
        else
            fputc(*at, out);
    }
    free(text);
    return 0;
}

static int print_page(FILE *out, const json_t *data)
{
    const char *mark = strstr(plait_report_page, DATA_MARK);

    fwrite(plait_report_page, 1, mark - plait_report_page, out);
    if (print_data(out, data) < 0)
        return -1;
    fputs(mark + strlen(DATA_MARK), out);
    return fflush(out) || ferror(out) ? -1 : 0;
}

/* Whether a page may get the name: one mistyped argument, and a page would
 * replace the metrics of a run. */
static int check_name(const char *path, struct plait_error *err)
{
    char begin[sizeof(PAGE_BEGIN)] = "";
    size_t size;
    struct stat st;
    FILE *f;

    if (stat(path, &st) < 0 || S_ISDIR(st.st_mode))
        return 0; /* a directory is refused when the page gets its name */
    f = S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    size = f ? fread(begin, 1, strlen(PAGE_BEGIN), f) : 0;
    if (f)
        fclose(f);
    if (f && (size == 0 || !strcmp(begin, PAGE_BEGIN)))
        return 0;
    return plait_errorf(err,
                        "--out %s: it exists and is not an HTML page; name "
                        "another file, or remove it",
                        path);
}

/* Written under a temporary name, and renamed when it is complete. */
static int write_page(const char *path, const json_t *data,
                      struct plait_error *err)
{
    char *partial;
    FILE *out;
    int rc;

    if (asprintf(&partial, "%s.partial", path) < 0)
        return plait_errorf(err, "out of memory");
    out = fopen(partial, "we");
    rc = out ? print_page(out, data) : -1;
    if (out && fclose(out) != 0)
        rc = -1;
    if (rc == 0)
        rc = rename(partial, path);
    if (rc < 0)
        plait_errorf(err, "%s: %s", path, strerror(errno));
    if (rc < 0 && out)
        unlink(partial);
    free(partial);
    return rc;
}

/* -- the command ----------------------------------------------------------- */

static int read_runs(char **files, size_t nfiles, struct plait_history **runs,
                     struct plait_error *err)
{
    for (size_t i = 0; i < nfiles; i++) {
        runs[i] = plait_history_create(files[i], err);
        if (!runs[i])
            return -1;
        if (runs[i]->nsteps == 0)
            return plait_errorf(err, "%s: it contains no step yet", files[i]);
        plait_history_say_skipped(runs[i], "plait-report");
    }
    return 0;
}

static int make_report(char **paths, int npaths, const char *out,
                       const char *gpu_type, struct plait_error *err)
{
    struct plait_history **runs = NULL;
    char **files = NULL;
    size_t nfiles = 0;
    json_t *data = NULL;
    int rc = check_name(out, err);

    for (size_t i = 0; i < (size_t)npaths && rc == 0; i++)
        rc = plait_history_find(paths[i], &files, &nfiles, err);
    if (rc == 0 && !(runs = calloc(nfiles, sizeof(*runs))))
        rc = plait_errorf(err, "out of memory");
    if (rc == 0)
        rc = read_runs(files, nfiles, runs, err);
    if (rc == 0 && !(data = make_data(runs, nfiles, gpu_type)))
        rc = plait_errorf(err, "out of memory");
    if (rc == 0)
        rc = write_page(out, data, err);
    json_decref(data);
    for (size_t i = 0; i < nfiles; i++) {
        plait_history_destroy(runs ? runs[i] : NULL);
        free(files[i]);
    }
    free(runs);
    free(files);
    return rc;
}

static const struct option options[] = {
    {"out", required_argument, NULL, 'o'},
    {"gpu-type", required_argument, NULL, 'g'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

static int misused(const char *what, const char *of)
{
    fprintf(stderr, "plait-report: %s%s; see --help\n", what, of);
    return 2;
}

static int refuse_unknown(const struct option *table, const char *word)
{
    char advice[PLAIT_OPTION_ADVICE];

    plait_option_advise(table, word, advice);
    fprintf(stderr, "plait-report: unknown option %s%s\n", word, advice);
    return 2;
}

static int print_text(const char *text)
{
    fputs(text, stdout);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "plait-report: standard output: %s\n", strerror(errno));
    return 1;
}

/* A type of the table, or of the site's own. */
static int find_type(const char *name, struct plait_error *err)
{
    struct plait_site *site = plait_site_create(plait_site_path(), err);
    struct plait_gpu_type gpu;
    int rc = site ? plait_site_gpu_type(site, name, &gpu, err) : -1;

    plait_site_destroy(site);
    return rc;
}

int main(int argc, char **argv)
{
    struct plait_error err = {""};
    const char *out = NULL, *gpu_type = NULL;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (option == 'h')
            return print_text(help);
        if (option == 'v')
            return print_text("plait-report " PACKAGE_VERSION "\n");
        if (option == ':')
            return misused("a value is missing after ", argv[optind - 1]);
        if (option != 'o' && option != 'g')
            return refuse_unknown(options, plait_option_word(argc, argv));
        if (option == 'o')
            out = optarg;
        else
            gpu_type = optarg;
    }
    if (gpu_type && find_type(gpu_type, &err) < 0) {
        fprintf(stderr, "plait-report: --gpu-type: %s\n", err.text);
        return 2;
    }
    if (optind == argc)
        return misused("needs metrics (DIR or FILE) and --out F.html", "");
    if (!out)
        return misused("--out F.html is missing", "");
    if (make_report(argv + optind, argc - optind, out, gpu_type, &err) == 0)
        return 0;
    fprintf(stderr, "plait-report: %s\n", err.text);
    return 1;
}
