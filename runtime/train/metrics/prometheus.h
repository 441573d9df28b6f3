/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_PROMETHEUS_H
#define PLAIT_RUNTIME_TRAIN_METRICS_PROMETHEUS_H

#include "runtime/train/metrics/metrics.h"

/* Replace the file at `path` by the numbers of one step, in Prometheus' text
 * format 0.0.4. Each has the label run, the name of the file without .prom, by
 * which several runs of a node are told apart. Readers see the old file or the
 * new one. -1 with errno: the old one stays. */
int plait_prometheus_write(const char *path, const struct plait_metrics *m);

#endif
