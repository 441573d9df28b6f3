/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/view/predicted.h"

#include <stdlib.h>
#include <string.h>

#include "topology/job/job_config.h"
#include "topology/job/site.h"
#include "topology/layout/layout.h"
#include "topology/predict/estimate.h"

#define SET_MARK "# --set "
#define SETS_MOST 256

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* The configuration as plait-train read it: the file's text, followed by what
 * --set changed. `text` is cut into pieces. */
static struct plait_job_config *parse_config(char *text,
                                             struct plait_error *err)
{
    const char *sets[SETS_MOST];
    size_t size = strlen(text);
    char *next;
    int n = 0;

    for (char *line = strstr(text, "\n" SET_MARK); line; line = next) {
        next = strchr(line + 1, '\n');
        if (next)
            *next = '\0';
        if (n < SETS_MOST && !strncmp(line + 1, SET_MARK, strlen(SET_MARK))) {
            if (n == 0)
                size = line - text;
            sets[n++] = line + 1 + strlen(SET_MARK);
        }
    }
    return plait_job_config_parse("configuration", text, size, sets, n, err);
}

static int find_layout(const json_t *start, struct plait_layout *layout,
                       struct plait_error *err)
{
    const char *order = text_of(json_object_get(start, "plan"), "order");

    plait_layout_init(layout);
    for (int i = 0; i < PLAIT_NAXES; i++)
        layout->size[i] = (int)json_integer_value(
            json_object_get(start, plait_axis_names[i]));
    if (order && plait_layout_parse_order(order, layout->order, err) < 0)
        return -1;
    return plait_layout_resolve(
        layout, (int)json_integer_value(json_object_get(start, "ranks")), err);
}

static int find_gpu(const char *name, struct plait_gpu_type *gpu,
                    struct plait_error *err)
{
    struct plait_site *site;
    int rc;

    if (!name)
        return plait_errorf(err, "the type of the GPUs was not recorded; give "
                                 "it with --gpu-type");
    site = plait_site_create(plait_site_path(), err);
    if (!site)
        return -1;
    rc = plait_site_gpu_type(site, name, gpu, err);
    plait_site_destroy(site);
    return rc;
}

static json_t *list_memory(const struct plait_job_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu)
{
    json_t *list = json_array();
    struct plait_memory m;

    for (int i = 0; i < layout->size[PLAIT_PP]; i++)
        if (plait_estimate_memory(config, layout, gpu, i, &m, NULL) == 0)
            json_array_append_new(list, json_real(m.total));
    return list;
}

static json_t *estimate(const struct plait_job_config *config,
                        const json_t *start, const char *gpu_type,
                        struct plait_error *err)
{
    struct plait_layout layout;
    struct plait_gpu_type gpu;
    struct plait_estimate e;
    json_t *axes;

    if (find_layout(start, &layout, err) < 0 ||
        find_gpu(gpu_type, &gpu, err) < 0 ||
        plait_estimate(config, &layout, &gpu, &e, err) < 0)
        return NULL;
    axes = json_object();
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (e.axis_s[i] > 0)
            json_object_set_new(axes, plait_axis_names[i],
                                json_real(e.axis_s[i]));
    return json_pack(
        "{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "gpu_type", gpu.name,
        "step_s", e.step_s, "tokens_per_s", e.tokens_per_s, "mfu", e.mfu,
        "compute_s", e.matmul_s + e.elementwise_s + e.launch_s + e.head_s,
        "bubble_s", e.bubble_s, "optimizer_s", e.optimizer_s, "axes", axes,
        "memory", list_memory(config, &layout, &gpu));
}

json_t *plait_report_text(const char *text)
{
    json_t *string = json_string(text);
    char *copy;

    if (string || !(copy = strdup(text)))
        return string;
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at > 127)
            *at = '?';
    string = json_string(copy);
    free(copy);
    return string;
}

json_t *plait_predicted(const json_t *start, const char *gpu_type)
{
    const char *text = text_of(start, "config");
    struct plait_error err = {"its start is not on record"};
    struct plait_job_config *config = NULL;
    json_t *result = NULL;
    char *copy;

    if (!gpu_type)
        gpu_type = text_of(json_object_get(start, "plan"), "gpu_type");
    if (text && (copy = strdup(text))) {
        config = parse_config(copy, &err);
        if (config)
            result = estimate(config, start, gpu_type, &err);
        free(copy);
    }
    plait_job_config_destroy(config);
    return result ? result
                  : json_pack("{s:o}", "error", plait_report_text(err.text));
}
