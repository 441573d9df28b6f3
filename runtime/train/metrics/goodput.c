/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* asprintf */
#include "config.h"

#include "runtime/train/metrics/goodput.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "topology/predict/goodput.h"

/* -- the past -------------------------------------------------------------- */

/* The number after "name": in a line of JSON, which has that text nowhere else;
 * NAN: there is none. */
static double find_number(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    char *end;
    double value;

    if (!at)
        return NAN;
    value = strtod(at + strlen(name), &end);
    return end > at + strlen(name) ? value : NAN;
}

static double or_zero(double value)
{
    return isfinite(value) ? value : 0;
}

/* There may be many lines, so that they are searched and not parsed. With
 * log.every above 1, a line stands for the steps before it too, the first one
 * for those after step `first`. */
static void read_steps(FILE *metrics, double first, int64_t done, double now,
                       struct plait_past *p)
{
    double before = first, last = NAN;
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, metrics) > 0) {
        double step = find_number(line, "\"step\":"),
               seconds = find_number(line, "\"step_s\":");

        if (isnan(step) || isnan(seconds) || step <= before)
            continue;
        seconds *= step - before;
        before = step;
        last = find_number(line, "\"time\":");
        p->saved += or_zero(find_number(line, "\"save_s\":"));
        if (step <= (double)done)
            p->trained += seconds;
        else
            p->lost_now += seconds;
    }
    p->failed_now = before > fmax(first, (double)done);
    if (isfinite(last) && now > last)
        p->waited_now = now - last;
    free(line);
}

/* Returns after which step the earliest began: a file may have been begun by a
 * run that was resumed. */
static double read_starts(FILE *starts, struct plait_past *p)
{
    double first = INFINITY;
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, starts) > 0) {
        double time = find_number(line, "\"time\":"),
               opened = find_number(line, "\"opened\":");

        if (isnan(time))
            continue;
        if (p->starts++ == 0)
            p->began = isfinite(opened) ? opened : time;
        first = fmin(first, or_zero(find_number(line, "\"step\":")));
        p->lost += or_zero(find_number(line, "\"lost_s\":"));
        p->waited += or_zero(find_number(line, "\"waited_s\":"));
        p->failures += strstr(line, "\"failed\":true") != NULL;
    }
    free(line);
    return or_zero(first);
}

static FILE *open_regular(const char *path)
{
    struct stat st;

    return path && stat(path, &st) == 0 && S_ISREG(st.st_mode)
               ? fopen(path, "re")
               : NULL;
}

void plait_past_read(const char *metrics, int64_t step, double now,
                     struct plait_past *past)
{
    char *path = NULL;
    double first;
    FILE *file;

    *past = (struct plait_past){.began = NAN};
    if (step == 0 || !metrics || asprintf(&path, "%s.starts", metrics) < 0)
        return;
    file = open_regular(path);
    free(path);
    if (!file)
        return;
    first = read_starts(file, past);
    fclose(file);
    file = open_regular(metrics);
    if (past->starts == 0 || !file) {
        *past = (struct plait_past){.began = NAN};
    } else {
        read_steps(file, first, step, now, past);
        past->lost += past->lost_now;
        past->waited += past->waited_now;
        past->failures += past->failed_now;
    }
    if (file)
        fclose(file);
}

/* -- this start ------------------------------------------------------------ */

static double first_began(const struct plait_goodput_account *a)
{
    return isfinite(a->past.began) ? a->past.began : a->opened;
}

void plait_goodput_step(struct plait_goodput_account *a, double now,
                        double seconds)
{
    a->trained_all += seconds;
    if (a->started <= 0) {
        a->started = fmax(now - a->opened, 1e-6);
        return;
    }
    a->trained += seconds;
    a->steps++;
}

void plait_goodput_save(struct plait_goodput_account *a, double seconds,
                        int begins)
{
    a->saving += seconds;
    a->saves += begins;
}

double plait_goodput_unreported(const struct plait_goodput_account *a)
{
    return a->saving - a->reported;
}

void plait_goodput_reported(struct plait_goodput_account *a)
{
    a->reported = a->saving;
}

double plait_goodput_share(const struct plait_goodput_account *a, double now)
{
    double wall = now - first_began(a);

    return wall >= 1 ? fmin((a->past.trained + a->trained_all) / wall, 1) : NAN;
}

double plait_goodput_lost(const struct plait_goodput_account *a, double now)
{
    return now - first_began(a) - a->past.trained - a->trained_all;
}

double plait_goodput_between(const struct plait_goodput_account *a, double now)
{
    return plait_failures_between(a->prior, now - first_began(a),
                                  a->past.failures);
}

static double mean_save(const struct plait_goodput_account *a)
{
    return a->saves > 0 ? a->saving / a->saves : 0;
}

static double mean_step(const struct plait_goodput_account *a)
{
    return a->steps > 0 ? a->trained / a->steps : a->trained_all;
}

double plait_goodput_expected(const struct plait_goodput_account *a, double now,
                              double every)
{
    struct plait_failure_costs c = {
        .between = plait_goodput_between(a, now),
        .every = every * mean_step(a),
        .save = mean_save(a),
        .start = a->started,
        .wait = a->past.starts > 0 ? a->past.waited / a->past.starts : 0,
    };

    return plait_expected_goodput(&c, now - first_began(a));
}

int64_t plait_goodput_every(const struct plait_goodput_account *a, double now)
{
    double seconds =
        plait_checkpoint_interval(mean_save(a), plait_goodput_between(a, now));
    double steps = round(seconds / fmax(mean_step(a), 1e-6));

    return steps < 1 ? 1 : steps > 1e9 ? 1000000000 : (int64_t)steps;
}
