/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_NODE_HEALTH_H
#define PLAIT_TOPOLOGY_NODE_HEALTH_H

#include <stddef.h>

#include "topology/base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is wrong with GPUs and NICs, as their drivers, sysfs and the kernel log
 * say. Nothing is run on a GPU. Whatever cannot be read, for lack of rights or
 * of a driver, counts as good. */

enum plait_health_kind {
    PLAIT_HEALTH_NOTE, /* good to know */
    PLAIT_HEALTH_BUSY, /* it is in use, which is right for a running job */
    PLAIT_HEALTH_BAD   /* no job should start on it */
};

enum { PLAIT_HEALTH_FINDINGS = 24, PLAIT_HEALTH_TEXT = 160 };

struct plait_health {
    int n;
    struct {
        enum plait_health_kind kind;
        char text[PLAIT_HEALTH_TEXT]; /* "GPU 0000:4b:00.0: what it is" */
    } found[PLAIT_HEALTH_FINDINGS];
};

/* What is to be looked at. */
struct plait_health_of {
    const char *root;        /* before /sys and /dev; "": this machine */
    const char *nvml;        /* the library's file; NULL: NVIDIA's */
    double up;               /* seconds since boot; 0: this machine's */
    const char *const *gpus; /* PCI addresses, "0000:4b:00.0" */
    int ngpus;
    const char *const *nics; /* "mlx5_0", "eth0" */
    int nnics;
};

/* Look in another process, which is killed after `seconds`: a driver of a
 * broken GPU may not answer, and that is a finding too. */
void plait_health_look(const struct plait_health_of *of, int seconds,
                       struct plait_health *health);

/* The rate of a NIC's first port in bytes a second; 0: not known. */
double plait_health_nic_rate(const char *root, const char *nic);

/* How many errors the NICs have counted so far. */
enum { PLAIT_HEALTH_NICS = 8, PLAIT_HEALTH_COUNTERS = 7 };
struct plait_health_counts {
    unsigned long long at[PLAIT_HEALTH_NICS][PLAIT_HEALTH_COUNTERS];
};
void plait_health_count(const struct plait_health_of *of,
                        struct plait_health_counts *counts);
/* Add a finding for each counter that has grown more from `before` to `now`
 * than that of a sound link. */
void plait_health_compare(const struct plait_health_of *of,
                          const struct plait_health_counts *before,
                          const struct plait_health_counts *now,
                          struct plait_health *health);

void plait_health_add(struct plait_health *health, enum plait_health_kind kind,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- for the files that implement it ---- */

/* health_nvml.c, health_sysfs.c, health_log.c */
void node_health_nvml(const struct plait_health_of *of,
                      struct plait_health *health);
void node_health_sysfs(const struct plait_health_of *of,
                       struct plait_health *health);
void node_health_log(const struct plait_health_of *of,
                     struct plait_health *health);

#ifdef __cplusplus
}
#endif
#endif
