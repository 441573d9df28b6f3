/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/view/picture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* What plait-watch shows: numbers at the top, curves below them. */

#define MEAN_STEPS 50 /* current values are means over so many lines */

/* -- numbers --------------------------------------------------------------- */

static double last_of(const struct plait_history *h, const char *name)
{
    const double *at = plait_history_column(h, name);

    for (size_t i = h->nsteps; at && i-- > 0;)
        if (isfinite(at[i]))
            return at[i];
    return NAN;
}

/* The mean over the lines from `i` on. */
static double mean_from(const struct plait_history *h, const char *name,
                        size_t i)
{
    const double *at = plait_history_column(h, name);
    size_t n = 0;
    double sum = 0;

    for (; at && i < h->nsteps; i++) {
        if (!isfinite(at[i]))
            continue;
        sum += at[i];
        n++;
    }
    return n ? sum / n : NAN;
}

static double mean_of(const struct plait_history *h, const char *name)
{
    return mean_from(h, name,
                     h->nsteps > MEAN_STEPS ? h->nsteps - MEAN_STEPS : 0);
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
    long long s;

    if (!isfinite(seconds) || fabs(seconds) > 1e15)
        return "-";
    s = (long long)(seconds + 0.5);
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
    int room = s->width - 2;

    if (steps < step) {
        plait_screen_put(s, 1, 0, "step %.0f", step);
        return;
    }
    share = step / steps;
    plait_screen_put(
        s, 1, 0, "step %.0f/%.0f  %.1f %%  %s%s", step, steps, 100 * share,
        step < steps ? format_time(left, each * (steps - step)) : "ended",
        step < steps ? " left" : "");
    plait_screen_put(s, 2, 0, "[");
    for (int i = 0; i < room; i++)
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

/* A line that is built piece by piece; what does not fit is left out. */
struct line {
    char text[512];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l,
                                                      const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(l->text + l->n, sizeof(l->text) - l->n, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof(l->text) - l->n)
        l->n += n;
    else
        l->text[l->n] = '\0';
}

static long long number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* "plan  tp 2  pp 2  dp 4  16 ranks  2 nodes  1f1b  zero 1  bf16" */
static void put_plan(struct plait_screen *s, const struct plait_history *h)
{
    static const char *const axes[] = {"tp", "cp", "ep", "dp", "pp"};
    const json_t *start = last_start(h), *plan, *nodes;
    struct line line = {.n = 0};

    if (!start)
        return;
    plan = json_object_get(start, "plan");
    nodes = json_object_get(plan, "nodes");
    add(&line, "plan");
    for (size_t i = 0; i < 5; i++)
        if (number_of(start, axes[i]) > 1)
            add(&line, "  %s %lld", axes[i], number_of(start, axes[i]));
    add(&line, "  %lld rank%s", number_of(start, "ranks"),
        number_of(start, "ranks") == 1 ? "" : "s");
    if (json_array_size(nodes) > 0) {
        long long most = 0;

        for (size_t i = 0; i < json_array_size(nodes); i++)
            if (json_integer_value(json_array_get(nodes, i)) > most)
                most = json_integer_value(json_array_get(nodes, i));
        add(&line, "  %lld node%s", most + 1, most ? "s" : "");
    }
    if (number_of(start, "pp") > 1)
        add(&line, "  %.20s",
            json_string_value(json_object_get(plan, "schedule")) ?: "");
    if (number_of(plan, "zero") > 0)
        add(&line, "  zero %lld", number_of(plan, "zero"));
    add(&line, "  %.10s",
        json_string_value(json_object_get(plan, "precision")) ?: "");
    plait_screen_put(s, 6, 0, "%s", line.text);
}

/* "slowest rank 3 works 0.21 s a step, quickest 0.19 s" */
static void put_slowest(struct plait_screen *s, const struct plait_history *h)
{
    double rank = last_of(h, "slowest_rank");

    if (isfinite(rank))
        plait_screen_put(s, 7, 0,
                         "slowest rank %.0f works %.3g s a step, quickest "
                         "%.3g s",
                         rank, last_of(h, "rank_s_max"),
                         last_of(h, "rank_s_min"));
    else
        plait_screen_put(s, 7, 0, "slowest rank not known yet");
}

/* The sum of the columns PREFIX.group. */
static double sum_of_groups(const struct plait_history *h, const char *prefix)
{
    double sum = 0, mean;

    for (size_t i = 0; i < h->ncolumns; i++)
        if (!strncmp(h->columns[i].name, prefix, strlen(prefix))) {
            mean = mean_of(h, h->columns[i].name);
            sum += isfinite(mean) ? mean : 0;
        }
    return sum;
}

/* Print a list; if it is longer than the screen is wide, only the items that
 * fit. */
static void put_list(struct plait_screen *s, int row, struct line *l)
{
    size_t room = s->width > 5 ? s->width - 5 : 0;

    if (l->n > (size_t)s->width) {
        while (room > 0 && l->text[room] != ',')
            room--;
        l->text[room] = '\0';
    }
    plait_screen_put(s, row, 0, "%s%s", l->text,
                     l->n > (size_t)s->width ? ", ..." : "");
}

/* "waits 12.0 % of a step: tp 8.0, dp-cp 4.0" and
 * "sends 13.0 MiB a step: 92 % tp, 8 % dp-cp" */
static void put_traffic(struct plait_screen *s, const struct plait_history *h)
{
    double step = mean_of(h, "step_s"), sent = sum_of_groups(h, "comm_bytes.");
    struct line waits = {.n = 0}, sends = {.n = 0};
    char bytes[16];

    add(&waits, "waits %.1f %% of a step", 100 * mean_of(h, "comm_s") / step);
    add(&sends, "sends %s a step", sent > 0 ? format_bytes(bytes, sent) : "0");
    for (size_t i = 0; i < h->ncolumns; i++) {
        const char *name = h->columns[i].name;

        if (!strncmp(name, "comm_s_groups.", 14))
            add(&waits, "%s %.20s %.1f", strchr(waits.text, ':') ? "," : ":",
                name + 14, 100 * mean_of(h, name) / step);
        if (!strncmp(name, "comm_bytes.", 11) && sent > 0)
            add(&sends, "%s %.3g %% %.20s", strchr(sends.text, ':') ? "," : ":",
                100 * mean_of(h, name) / sent, name + 11);
    }
    put_list(s, 8, &waits);
    put_list(s, 9, &sends);
}

/* The share of the time since the first start that went into steps that
 * count. */
static double goodput_of(const struct plait_history *h)
{
    double began = json_number_value(
        json_object_get(json_array_get(h->starts, 0), "time"));
    double wall = last_of(h, "time") - began;
    double all = mean_from(h, "step_s", 0) * last_of(h, "step");

    return json_array_size(h->starts) && wall >= 1 ? fmin(all / wall, 1) : NAN;
}

static void put_reliability(struct plait_screen *s,
                            const struct plait_history *h)
{
    double saved = last_of(h, "saved_step"), good = goodput_of(h);
    struct line line = {.n = 0};

    if (isfinite(saved))
        add(&line, "checkpoint of step %.0f", saved);
    else
        add(&line, "no checkpoint yet");
    if (isfinite(good))
        add(&line, "   goodput %.1f %%", 100 * good);
    add(&line, "   starts %zu", json_array_size(h->starts));
    plait_screen_put(s, 10, 0, "%s", line.text);
}

static void put_age(struct plait_screen *s, const struct plait_history *h)
{
    size_t room = s->width > 38 ? s->width - 34 : 4, size = strlen(h->path);
    double age = time(NULL) - last_of(h, "time");
    char text[32];

    if (size > room)
        plait_screen_put(s, 0, 0, "plait watch  ...%s",
                         h->path + size - room + 3);
    else
        plait_screen_put(s, 0, 0, "plait watch  %s", h->path);
    if (isfinite(age))
        plait_screen_put(s, 0, s->width - 18, "%14s ago",
                         format_time(text, age > 0 ? age : 0));
}

/* Draw curves into the rows from `top` on: two side by side on a wide screen,
 * two one above the other on a high one, else one. */
static void put_curves(struct plait_screen *s, const struct plait_history *h,
                       int top)
{
    static const struct {
        const char *column, *title;
    } curves[] = {{"loss", "loss"}, {"tokens_per_s", "tokens/s"}};
    int rows = s->height - top - 1, width = s->width, two_wide, two_high;

    two_wide = width >= 120;
    two_high = !two_wide && rows >= 28;
    for (int i = 0; i < 1 + (two_wide || two_high); i++) {
        const double *y = plait_history_column(h, curves[i].column);
        struct plait_plot plot = {.top = top + (two_high ? i * (rows / 2) : 0),
                                  .left = two_wide ? i * (width / 2) : 0,
                                  .rows = two_high ? rows / 2 : rows,
                                  .columns =
                                      two_wide ? width / 2 - 2 * !i : width,
                                  .title = curves[i].title};

        if (y)
            plait_screen_plot(s, &plot, plait_history_column(h, "step"), y,
                              h->nsteps);
    }
}

struct plait_screen *plait_picture_draw(const struct plait_history *h,
                                        int width, int height)
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
    put_plan(s, h);
    put_slowest(s, h);
    put_traffic(s, h);
    put_reliability(s, h);
    put_curves(s, h, 11);
    plait_screen_put(s, height - 1, width - 7, "q quits");
    return s;
}
