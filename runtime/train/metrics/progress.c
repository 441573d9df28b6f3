/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/metrics/progress.h"
#include "topology/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define LIVE_S 0.1
#define PLAIN_S 2.0

/* mpirun gives its ranks a terminal even where its own output goes to a file:
 * look at the output of mpirun then. */
static bool on_terminal(FILE *out)
{
    char path[64];
    bool live;
    int fd;

    if (!isatty(fileno(out)) || !getenv("OMPI_COMM_WORLD_SIZE"))
        return isatty(fileno(out));
    snprintf(path, sizeof(path), "/proc/%d/fd/1", (int)getppid());
    fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    live = fd >= 0 && isatty(fd);
    if (fd >= 0)
        close(fd);
    return live;
}

void plait_progress_init(struct plait_progress *p, FILE *out, int64_t first,
                         int64_t steps, bool images)
{
    p->out = out;
    p->images = images;
    p->live = on_terminal(out);
    p->first = first;
    p->steps = steps;
    p->start = plait_clock_now();
    p->shown = -INFINITY;
}

/* "1:02:03" or "2:03" */
static void format_time(char *buf, size_t size, double seconds)
{
    int64_t s = seconds + 0.5;

    if (s >= 3600)
        snprintf(buf, size, "%" PRId64 ":%02d:%02d", s / 3600,
                 (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(buf, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* A live line with an outlier stays, and the next begins below it. */
static void format_outlier(char *buf, size_t size,
                           const struct plait_metrics *m)
{
    if (m->seen.outlier)
        snprintf(buf, size,
                 "  outlier: loss %.1f, gradient norm %.1f deviations off the "
                 "steps before%s",
                 m->seen.loss_z, m->seen.norm_z, m->skipped ? ", skipped" : "");
}

/* The losses of named sets get a separate line, which stays. */
static void show_sets(const struct plait_progress *p,
                      const struct plait_metrics *m)
{
    if (isnan(m->val.loss) || !m->val.sets)
        return;
    fprintf(p->out, "%sstep %" PRId64 " val:", p->live ? "\r" : "", m->step);
    for (int i = 0; i < m->val.sets->n; i++)
        fprintf(p->out, "%s %s %.4f", i ? "," : "", m->val.sets->at[i].name,
                m->val.losses[i]);
    fputs(p->live ? "\033[K\n" : "\n", p->out);
}

void plait_progress_show(struct plait_progress *p,
                         const struct plait_metrics *m)
{
    double t = plait_clock_now(), each = (t - p->start) / (m->step - p->first);
    bool edge = m->step == p->first + 1 || m->step == p->steps;
    char left[32], val[64] = "", outlier[128] = "";

    if (!edge && isnan(m->val.loss) && !m->seen.outlier &&
        t - p->shown < (p->live ? LIVE_S : PLAIN_S))
        return;
    p->shown = t;
    format_time(left, sizeof(left), each * (p->steps - m->step));
    if (!isnan(m->val.loss))
        snprintf(val, sizeof(val), "  val %.4f", m->val.loss);
    if (!isnan(m->val.accuracy))
        snprintf(val, sizeof(val), "  val %.4f (%.2f %% right)", m->val.loss,
                 100 * m->val.accuracy);
    format_outlier(outlier, sizeof(outlier), m);
    show_sets(p, m);
    fprintf(p->out,
            "%sstep %" PRId64 "/%" PRId64 "  loss %.4f%s  %.0f %s/s  "
            "MFU %.1f %%  %s left%s%s",
            p->live ? "\r" : "", m->step, p->steps, m->loss, val,
            m->tokens_per_s, p->images ? "images" : "tokens", 100 * m->mfu,
            left, outlier,
            !p->live          ? "\n"
            : m->seen.outlier ? "\033[K\n"
                              : "\033[K");
    fflush(p->out);
}

void plait_progress_end(struct plait_progress *p)
{
    if (p->live && isfinite(p->shown))
        fputc('\n', p->out);
    fflush(p->out);
    p->live = 0;
}
