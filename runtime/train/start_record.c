/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/start_record.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static json_t *build_record(const struct plait_start_record *r)
{
    const struct plait_session *s = r->s;
    const int *size = s->mesh->layout.size;
    const char *job = getenv("PLAIT_JOBID");
    char host[256] = "";
    json_t *config = json_string(r->config);

    if (!config) /* not UTF-8 */
        config = json_null();
    gethostname(host, sizeof(host) - 1);
    return json_pack(
        "{s:I, s:I, s:I, s:s, s:s, s:s?, s:s, s:I, s:f, s:i, s:i, s:i, s:i, "
        "s:i, s:i, s:o}",
        "time", (json_int_t)time(NULL), "step", (json_int_t)r->step, "steps",
        (json_int_t)s->config->train.steps, "version", PACKAGE_VERSION, "host",
        host, "job", job, "device", s->world.ops->name, "parameters",
        (json_int_t)r->parameters, "peak_flops", r->peak, "ranks",
        s->mesh->world_size, "tp", size[PLAIT_TP], "cp", size[PLAIT_CP], "ep",
        size[PLAIT_EP], "dp", size[PLAIT_DP], "pp", size[PLAIT_PP], "config",
        config);
}

static int write_line(const char *path, const char *mode, json_t *line)
{
    FILE *out = fopen(path, mode);
    int rc;

    if (!out)
        return -1;
    rc = json_dumpf(line, out, JSON_COMPACT) < 0 || fputc('\n', out) == EOF;
    if (fclose(out) != 0)
        rc = 1;
    return rc ? -1 : 0;
}

int plait_start_record_write(const char *metrics,
                             const struct plait_start_record *record,
                             struct plait_error *err)
{
    struct stat st;
    json_t *line;
    char *path;
    int rc;

    if (stat(metrics, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    line = build_record(record);
    if (!line || asprintf(&path, "%s.starts", metrics) < 0) {
        json_decref(line);
        return plait_errorf(err, "out of memory");
    }
    rc = write_line(path, record->step > 0 ? "ae" : "we", line);
    if (rc < 0)
        plait_errorf(err, "log.metrics: %s: %s", path, strerror(errno));
    json_decref(line);
    free(path);
    return rc;
}
