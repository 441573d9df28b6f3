/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/prep_progress.h"
#include "topology/base/clock.h"

#include <stdio.h>
#include <unistd.h>

void plait_prep_progress_start(struct plait_prep_progress *p, int64_t done,
                               int64_t all)
{
    p->shown = isatty(STDERR_FILENO);
    p->start = p->last = plait_clock_now();
    p->begin = done;
    p->all = all;
}

void plait_prep_progress_show(struct plait_prep_progress *p, int64_t done)
{
    double now = plait_clock_now(), rate, left;

    if (!p->shown || now - p->last < 0.5)
        return;
    p->last = now;
    rate = (double)(done - p->begin) / (now - p->start);
    left = rate > 0 ? (double)(p->all - done) / rate : 0;
    fprintf(stderr,
            "\rplait-prep: %.1f of %.1f MB, %.1f MB/s, %d:%02d:%02d left   ",
            (double)done / 1e6, (double)p->all / 1e6, rate / 1e6,
            (int)(left / 3600), (int)(left / 60) % 60, (int)left % 60);
    fflush(stderr);
}

void plait_prep_progress_end(struct plait_prep_progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r%79s\r", "");
}
