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
#include <time.h>
#include <unistd.h>

#include "runtime/view/history.h"
#include "runtime/view/screen.h"
#include "runtime/view/terminal.h"

/* plait-watch: a run in the terminal, from its metrics file alone. */

#define MEAN_STEPS 50 /* what "now" is the mean of */

static const char help[] =
    "usage: plait-watch [DIR|FILE]\n"
    "Show a run while it trains, from the metrics that plait-train logs\n"
    "(log.metrics): FILE, or the newest of DIR (.). q or Ctrl-C ends.\n"
    "\n"
    "  --help, --version\n";

/* -- numbers --------------------------------------------------------------- */

static double last_of(const struct plait_history *h, const char *name)
{
    const double *at = plait_history_column(h, name);
    size_t i;

    for (i = h->nsteps; at && i-- > 0;)
        if (isfinite(at[i]))
            return at[i];
    return NAN;
}

static double mean_of(const struct plait_history *h, const char *name)
{
    const double *at = plait_history_column(h, name);
    size_t i = h->nsteps > MEAN_STEPS ? h->nsteps - MEAN_STEPS : 0, n = 0;
    double sum = 0;

    for (; at && i < h->nsteps; i++) {
        if (!isfinite(at[i]))
            continue;
        sum += at[i];
        n++;
    }
    return n ? sum / n : NAN;
}

static const json_t *last_start(const struct plait_history *h)
{
    size_t n = json_array_size(h->starts);

    return n ? json_array_get(h->starts, n - 1) : NULL;
}

/* 12345 as "12.3k" */
static const char *format_count(char buf[16], double v)
{
    const char *unit = " kMGTP";
    double base = 1000;

    if (!isfinite(v))
        return "-";
    while (fabs(v) >= 999.5 && unit[1]) {
        v /= base;
        unit++;
    }
    snprintf(buf, 16, "%.3g%.*s", v, *unit != ' ', unit);
    return buf;
}

static const char *format_bytes(char buf[16], double v)
{
    const char *unit = "KMGTP";

    if (!isfinite(v))
        return "-";
    for (v /= 1024; v >= 1000 && unit[1]; unit++)
        v /= 1024;
    snprintf(buf, 16, v < 100 ? "%.1f %ciB" : "%.0f %ciB", v, *unit);
    return buf;
}

static const char *format_time(char buf[32], double seconds)
{
    long long s = seconds + 0.5;

    if (!isfinite(seconds) || seconds > 1e15)
        return "-";
    if (s >= 86400)
        snprintf(buf, 32, "%lld d %lld h", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(buf, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%lld:%02lld", s / 60, s % 60);
    return buf;
}

/* -- the picture ----------------------------------------------------------- */

static void put_progress(struct plait_screen *s, const struct plait_history *h)
{
    double step = last_of(h, "step"), each = mean_of(h, "step_s"), share;
    double steps = json_integer_value(json_object_get(last_start(h), "steps"));
    char left[32];
    int i, room = s->width - 2;

    if (steps < step) {
        plait_screen_put(s, 1, 0, "step %.0f", step);
        return;
    }
    share = step / steps;
    plait_screen_put(s, 1, 0, "step %.0f/%.0f  %.1f %%  %s left", step, steps,
                     100 * share, format_time(left, each * (steps - step)));
    plait_screen_put(s, 2, 0, "[");
    for (i = 0; i < room; i++)
        plait_screen_put(s, 2, 1 + i, i < share * room ? "#" : ".");
    plait_screen_put(s, 2, s->width - 1, "]");
}

static void put_numbers(struct plait_screen *s, const struct plait_history *h)
{
    int third = s->width / 3;
    char a[16], b[16];

    plait_screen_put(s, 3, 0, "loss      %.4f", last_of(h, "loss"));
    if (isfinite(last_of(h, "val_loss")))
        plait_screen_put(s, 4, 0, "val loss  %.4f", last_of(h, "val_loss"));
    plait_screen_put(s, 5, 0, "grad norm %.3g", last_of(h, "grad_norm"));
    plait_screen_put(s, 3, third, "tokens/s %s",
                     format_count(a, mean_of(h, "tokens_per_s")));
    plait_screen_put(s, 4, third, "MFU      %.1f %%", 100 * mean_of(h, "mfu"));
    plait_screen_put(s, 5, third, "step     %.3g s", mean_of(h, "step_s"));
    plait_screen_put(s, 3, 2 * third, "memory %s",
                     format_bytes(a, last_of(h, "mem_bytes")));
    plait_screen_put(s, 4, 2 * third, "tokens %s",
                     format_count(b, last_of(h, "tokens")));
    plait_screen_put(s, 5, 2 * third, "lr     %.3g", last_of(h, "lr"));
}

/* "exposed 12.0 %: tp 8.0 %, dp-cp 4.0 %   sent a step: tp 12.0 MiB" */
static void put_traffic(struct plait_screen *s, const struct plait_history *h)
{
    double step = mean_of(h, "step_s");
    char text[512], bytes[16];
    size_t i, n;

    n = snprintf(text, sizeof(text), "exposed %.1f %%",
                 100 * mean_of(h, "comm_s") / step);
    for (i = 0; i < h->ncolumns && n < sizeof(text) - 100; i++) {
        const char *name = h->columns[i].name;

        if (!strncmp(name, "comm_s_groups.", 14))
            n += snprintf(text + n, sizeof(text) - n, ", %.20s %.1f %%",
                          name + 14, 100 * mean_of(h, name) / step);
    }
    plait_screen_put(s, 6, 0, "%s", text);
    n = 0;
    text[0] = '\0';
    for (i = 0; i < h->ncolumns && n < sizeof(text) - 100; i++) {
        const char *name = h->columns[i].name;

        if (!strncmp(name, "comm_bytes.", 11))
            n += snprintf(text + n, sizeof(text) - n, "%s%.20s %s",
                          n ? ", " : "sent a step: ", name + 11,
                          format_bytes(bytes, mean_of(h, name)));
    }
    plait_screen_put(s, 7, 0, "%s", text);
}

static void put_layout(struct plait_screen *s, const struct plait_history *h)
{
    static const char *const axes[] = {"tp", "cp", "ep", "dp", "pp"};
    const json_t *start = last_start(h);
    char text[128] = "";
    size_t i, n = 0;
    int row = s->height - 1;

    for (i = 0; start && i < 5; i++)
        n += snprintf(text + n, sizeof(text) - n, "%s %lld  ", axes[i],
                      json_integer_value(json_object_get(start, axes[i])) %
                          1000000);
    plait_screen_put(s, row, 0, "%sstarts %zu", text,
                     json_array_size(h->starts));
    plait_screen_put(s, row, s->width - 7, "q quits");
}

static void put_age(struct plait_screen *s, const struct plait_history *h)
{
    size_t room = s->width > 34 ? s->width - 34 : 1, size = strlen(h->path);
    double age = time(NULL) - last_of(h, "time");
    char text[32];

    plait_screen_put(s, 0, 0, "plait watch  %s",
                     h->path + (size > room ? size - room : 0));
    if (isfinite(age))
        plait_screen_put(s, 0, s->width - 18, "%14s ago",
                         format_time(text, age > 0 ? age : 0));
}

static struct plait_screen *draw(const struct plait_history *h, int width,
                                 int height)
{
    struct plait_screen *s = plait_screen_create(width, height);

    if (!s)
        return NULL;
    put_age(s, h);
    if (h->nsteps == 0) {
        plait_screen_put(s, 2, 0, "no step yet");
        return s;
    }
    put_progress(s, h);
    put_numbers(s, h);
    put_traffic(s, h);
    if (plait_history_column(h, "loss"))
        plait_screen_plot(s, 9, height - 10, plait_history_column(h, "step"),
                          plait_history_column(h, "loss"), h->nsteps);
    put_layout(s, h);
    return s;
}

/* -- the command ----------------------------------------------------------- */

static int show(const struct plait_history *h, int width, int height,
                const char *begin, const char *end, struct plait_error *err)
{
    struct plait_screen *s = draw(h, width, height);

    if (!s)
        return plait_errorf(err, "out of memory");
    fputs(begin, stdout);
    plait_screen_print(s, end, stdout);
    plait_screen_destroy(s);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return plait_errorf(err, "standard output: %s", strerror(errno));
}

static int watch(struct plait_history *h, struct plait_error *err)
{
    int rc = 0, width, height;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        rc = show(h, 80, 24, "", "\n", err);
        putchar('\n');
        return rc;
    }
    if (plait_terminal_open() < 0)
        return plait_errorf(err, "terminal: %s", strerror(errno));
    do {
        plait_terminal_size(&width, &height);
        /* Each line is cleared behind its text, and so is what is below. */
        rc = show(h, width, height, "\033[H", "\033[K\r\n", err);
        fputs("\033[J", stdout);
        fflush(stdout);
        if (rc < 0 || !plait_terminal_wait(1))
            break;
        rc = plait_history_update(h, err);
    } while (rc >= 0);
    plait_terminal_close();
    return rc < 0 ? -1 : 0;
}

/* The one that was written last: its index. */
static size_t newest(char **files, size_t n)
{
    struct timespec best = {0}, at;
    size_t i, found = 0;
    struct stat st;

    for (i = 0; i < n; i++) {
        if (stat(files[i], &st) < 0)
            continue;
        at = st.st_mtim;
        if (at.tv_sec > best.tv_sec ||
            (at.tv_sec == best.tv_sec && at.tv_nsec > best.tv_nsec)) {
            best = at;
            found = i;
        }
    }
    return found;
}

static int watch_path(const char *path, struct plait_error *err)
{
    struct plait_history *h = NULL;
    char **files = NULL;
    size_t nfiles = 0, i;
    int rc = plait_history_find(path, &files, &nfiles, err);

    if (rc == 0) {
        h = plait_history_create(files[newest(files, nfiles)], err);
        rc = h ? watch(h, err) : -1;
    }
    plait_history_destroy(h);
    for (i = 0; i < nfiles; i++)
        free(files[i]);
    free(files);
    return rc;
}

static int print_text(const char *text)
{
    fputs(text, stdout);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "plait-watch: standard output: %s\n", strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct plait_error err = {""};
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h')
            return print_text(help);
        if (option == 'v')
            return print_text("plait-watch " PACKAGE_VERSION "\n");
        fprintf(stderr, "plait-watch: unknown option %s; see --help\n",
                argv[optind - 1]);
        return 2;
    }
    if (argc - optind > 1) {
        fprintf(stderr, "plait-watch: one DIR or FILE; see --help\n");
        return 2;
    }
    if (watch_path(optind < argc ? argv[optind] : ".", &err) == 0)
        return 0;
    fprintf(stderr, "plait-watch: %s\n", err.text);
    return 1;
}
