/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/metrics/prometheus.h"
#include "runtime/train/metrics/tensorboard.h"

struct plait_log {
    struct plait_metrics_file *metrics; /* NULL: none */
    const char *metrics_path;
    struct plait_tensorboard *tensorboard;
    const char *prometheus;
};

/* The configuration file as it was read, followed by the changes of --set. */
static char *config_text(const struct plait_session *s,
                         const struct plait_train_args *args)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    fputs(s->config_text, out);
    for (int i = 0; i < args->nset; i++)
        fprintf(out, "%s# --set %s\n", i ? "" : "\n", args->set[i]);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static int open_outputs(struct plait_log *log, const char *metrics,
                        const struct plait_start_record *record,
                        struct plait_error *err)
{
    const char *dir = record->s->config->log.tensorboard;

    log->metrics_path = metrics;
    if (metrics) {
        log->metrics = plait_metrics_create(metrics, record->step, err);
        if (!log->metrics || plait_start_record_write(metrics, record, err) < 0)
            return -1;
    }
    if (dir) {
        log->tensorboard =
            plait_tensorboard_create(dir, record->step, record->config, err);
        if (!log->tensorboard)
            return -1;
    }
    return 0;
}

struct plait_log *plait_log_create(const struct plait_start_record *start,
                                   const struct plait_train_args *args,
                                   struct plait_error *err)
{
    struct plait_log *log = calloc(1, sizeof(*log));
    char *config = config_text(start->s, args);
    struct plait_start_record record = *start;

    record.config = config;
    if (!log || !config) {
        plait_errorf(err, "out of memory");
        goto error;
    }
    log->prometheus = start->s->config->log.prometheus;
    if (open_outputs(log, plait_session_metrics(start->s, args), &record, err) <
        0)
        goto error;
    free(config);
    return log;
error:
    free(config);
    plait_log_destroy(log);
    return NULL;
}

int plait_log_write(struct plait_log *log, const struct plait_metrics *m,
                    struct plait_error *err)
{
    if (log->metrics && plait_metrics_write(log->metrics, m) < 0)
        return plait_errorf(err, "log.metrics: %s: %s", log->metrics_path,
                            strerror(errno));
    if (log->tensorboard && plait_tensorboard_write(log->tensorboard, m) < 0)
        return plait_errorf(err, "log.tensorboard: %s", strerror(errno));
    if (log->prometheus && plait_prometheus_write(log->prometheus, m) < 0)
        return plait_errorf(err, "log.prometheus: %s: %s", log->prometheus,
                            strerror(errno));
    return 0;
}

int plait_log_histograms(struct plait_log *log, int64_t step,
                         const struct plait_histograms *h,
                         struct plait_error *err)
{
    if (plait_tensorboard_histograms(log->tensorboard, step, h) < 0)
        return plait_errorf(err, "log.tensorboard: %s", strerror(errno));
    return 0;
}

void plait_log_destroy(struct plait_log *log)
{
    if (!log)
        return;
    plait_metrics_destroy(log->metrics);
    plait_tensorboard_destroy(log->tensorboard);
    free(log);
}
