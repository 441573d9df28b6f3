/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a preflight that looks at what a task was given: its GPU and its
 * NICs. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "topology/base/clock.h"
#include "topology/start/preflight.h"

/* How long drivers may take: without persistence mode NVIDIA's starts each GPU
 * of the machine first. A GPU in use is looked at again for some time, as that
 * of a step that has just ended frees its memory. Both together are far below
 * the time that RANK 0 waits for a task. */
enum { SECONDS = 20, LOOKS = 3, AGAIN_SECONDS = 10 };

struct devices {
    const char *gpu, *nics[PLAIT_HEALTH_NICS];
    char names[sizeof(((struct plait_launch *)0)->nics)];
    struct plait_health_of of;
};

static void list_devices(const struct plait_launch *launch, struct devices *d)
{
    char *save;

    memset(d, 0, sizeof(*d));
    d->of.root = "";
    d->gpu = launch->gpu_busid;
    d->of.gpus = &d->gpu;
    d->of.ngpus = *d->gpu != '\0';
    snprintf(d->names, sizeof(d->names), "%s", launch->nics);
    d->of.nics = d->nics;
    for (char *name = strtok_r(d->names, ",", &save);
         name && d->of.nnics < PLAIT_HEALTH_NICS;
         name = strtok_r(NULL, ",", &save))
        d->nics[d->of.nnics++] = name;
}

static bool is_busy(const struct plait_health *health)
{
    for (int i = 0; i < health->n; i++)
        if (health->found[i].kind == PLAIT_HEALTH_BUSY)
            return true;
    return false;
}

/* What does not fit whole is left out. */
static void add_faults(const struct plait_health *health,
                       struct plait_preflight_report *report)
{
    struct plait_text faults = {report->faults, sizeof(report->faults),
                                strlen(report->faults)};

    for (int i = 0; i < health->n; i++)
        if (health->found[i].kind != PLAIT_HEALTH_NOTE)
            plait_text_add(&faults, "%s%s", faults.used ? ", " : "",
                           health->found[i].text);
    plait_preflight_clean_name(report->faults);
}

void plait_preflight_look(const struct plait_launch *launch,
                          struct plait_health_counts *counts,
                          struct plait_preflight_report *report)
{
    const struct timespec pause = {.tv_sec = 1};
    struct plait_health health = {0};
    double begin = plait_clock_now();
    struct devices devices;

    list_devices(launch, &devices);
    plait_health_look(&devices.of, SECONDS, &health);
    for (int i = 1; i < LOOKS && is_busy(&health) &&
                    plait_clock_now() - begin < AGAIN_SECONDS;
         i++) {
        nanosleep(&pause, NULL);
        health.n = 0;
        plait_health_look(&devices.of, SECONDS, &health);
    }
    add_faults(&health, report);
    for (int i = 0; i < devices.of.nnics; i++) {
        double rate = plait_health_nic_rate("", devices.nics[i]);

        if (rate > 0 && (!(report->nic > 0) || rate < report->nic))
            report->nic = rate;
    }
    plait_health_count(&devices.of, counts);
}

void plait_preflight_look_again(const struct plait_launch *launch,
                                const struct plait_health_counts *counts,
                                struct plait_preflight_report *report)
{
    struct plait_health_counts now;
    struct plait_health health = {0};
    struct devices devices;

    list_devices(launch, &devices);
    plait_health_count(&devices.of, &now);
    plait_health_compare(&devices.of, counts, &now, &health);
    add_faults(&health, report);
}
