/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/metrics/prometheus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct page {
    FILE *out;
    const char *run;
    size_t run_size;
    const char *last; /* the name whose HELP and TYPE are written */
};

/* Write the label's value, escaped as the format asks. */
static void put_run(const struct page *p)
{
    for (size_t i = 0; i < p->run_size; i++) {
        if (p->run[i] == '\\' || p->run[i] == '"')
            fputc('\\', p->out);
        fputc(p->run[i] == '\n' ? ' ' : p->run[i], p->out);
    }
}

static void put_metric(const struct plait_metric *metric, void *arg)
{
    struct page *p = arg;

    if (!p->last || strcmp(p->last, metric->open_name))
        fprintf(p->out, "# HELP plait_%s %s\n# TYPE plait_%s gauge\n",
                metric->open_name, metric->help, metric->open_name);
    p->last = metric->open_name;
    fprintf(p->out, "plait_%s{run=\"", metric->open_name);
    put_run(p);
    if (metric->label)
        fprintf(p->out, "\",%s=\"%s", metric->label, metric->key);
    fprintf(p->out, "\"} %.15g\n", metric->value);
}

static int write_page(FILE *out, const char *path,
                      const struct plait_metrics *m)
{
    const char *name = strrchr(path, '/');
    struct page p = {.out = out, .run = name ? name + 1 : path};
    struct plait_metric step = {.open_name = "step",
                                .help = "The last step that was logged.",
                                .value = m->step};
    struct plait_metric now = {.open_name = "step_timestamp_seconds",
                               .help = "When it ended, Unix time.",
                               .value = time(NULL)};

    p.run_size = strlen(p.run);
    if (p.run_size > 5 && !strcmp(p.run + p.run_size - 5, ".prom"))
        p.run_size -= 5;
    put_metric(&step, &p);
    put_metric(&now, &p);
    plait_metrics_each(m, put_metric, &p);
    return fflush(out) || ferror(out) ? -1 : 0;
}

int plait_prometheus_write(const char *path, const struct plait_metrics *m)
{
    char *partial;
    FILE *out;
    int rc, saved;

    if (asprintf(&partial, "%s.partial", path) < 0)
        return -1;
    out = fopen(partial, "we");
    rc = out ? write_page(out, path, m) : -1;
    if (out && fclose(out) != 0)
        rc = -1;
    if (rc == 0)
        rc = rename(partial, path);
    saved = errno;
    if (rc < 0 && out)
        unlink(partial);
    free(partial);
    errno = saved;
    return rc;
}
