/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/start_record.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "topology/base/yaml.h"
#include "topology/job/schedule.h"

/* The node of each rank, numbered 0, 1, ... by the order of their first
 * ranks. */
static json_t *list_nodes(const double *nodes, int ranks, int *nnodes)
{
    json_t *list = json_array();
    int *first = calloc(ranks, sizeof(*first)); /* rank of a node */
    int n = 0, i;

    for (int rank = 0; list && first && rank < ranks; rank++) {
        for (i = n - 1; i >= 0 && nodes[first[i]] != nodes[rank];)
            i--;
        if (i < 0) {
            i = n++;
            first[i] = rank;
        }
        json_array_append_new(list, json_integer(i));
    }
    free(first);
    *nnodes = n;
    return list;
}

static const char *precision_name(const struct plait_job_config *c)
{
    const struct plait_yaml_field *s;
    int n, i;

    for (s = plait_job_config_sections(&n); strcmp(s->name, "train");)
        s++;
    for (i = 0; strcmp(s->fields[i].name, "precision");)
        i++;
    return s->fields[i].choices[c->train.precision];
}

/* JSON has no texts that are not UTF-8: null for those. */
static json_t *text_or_null(const char *text)
{
    json_t *string = json_string(text);

    return string ? string : json_null();
}

/* What shapes a step. own_time: its parts are measured in processor time
 * (took.h), unlike in earlier builds. gpu_type is null on a single node, where
 * nothing has looked for the type of its GPUs. */
static json_t *build_plan(const struct plait_start_record *r)
{
    const struct plait_job_config *c = r->s->config;
    const struct plait_mesh *mesh = r->s->mesh;
    char order[16], dir[PATH_MAX] = "";
    json_t *nodes;
    int n = 0;

    if (!getcwd(dir, sizeof(dir)))
        dir[0] = '\0';
    plait_layout_format_order(&mesh->layout, order);
    nodes = list_nodes(r->nodes, mesh->world_size, &n);
    return json_pack(
        "{s:s, s:s, s:i, s:s, s:i, s:i, s:s?, s:s?, s:o, s:i, s:i, s:b, s:o}",
        "order", order, "schedule", plait_schedule_names[c->parallel.schedule],
        "zero", c->parallel.zero, "precision", precision_name(c), "micro_batch",
        c->train.micro_batch, "global_batch", c->train.global_batch, "gpu_type",
        !r->s->world.ops->gpu || n > 1 ? mesh->gpu.name : NULL, "profile",
        c->log.profile, "dir", text_or_null(dir), "threads",
        r->s->world.threads, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN),
        "own_time", !r->s->world.ops->gpu, "nodes", nodes);
}

static json_t *build_record(const struct plait_start_record *r)
{
    const struct plait_session *s = r->s;
    const int *size = s->mesh->layout.size;
    const char *job = getenv("PLAIT_JOBID");
    char host[256] = "";

    if (!job) /* srun without the plugin, or mpirun in a job */
        job = getenv("SLURM_JOB_ID");
    gethostname(host, sizeof(host) - 1);
    return json_pack(
        "{s:I, s:f, s:f, s:f, s:b, s:I, s:I, s:s, s:s, s:s?, s:s, s:s?, s:I, "
        "s:f, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:o}",
        "time", (json_int_t)time(NULL), "opened", s->opened, "lost_s",
        r->past->lost_now, "waited_s", r->past->waited_now, "failed",
        r->past->failed_now, "step", (json_int_t)r->step, "steps",
        (json_int_t)s->config->train.steps, "version", PACKAGE_VERSION, "host",
        host, "job", job, "device", s->world.ops->name, "cpu_isa",
        s->world.ops->gpu ? NULL : plait_cpu_isa(NULL), "parameters",
        (json_int_t)r->parameters, "peak_flops", r->peak, "ranks",
        s->mesh->world_size, "tp", size[PLAIT_TP], "cp", size[PLAIT_CP], "ep",
        size[PLAIT_EP], "dp", size[PLAIT_DP], "pp", size[PLAIT_PP], "plan",
        build_plan(r), "config", text_or_null(r->config));
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
