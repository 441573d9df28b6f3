/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/cmd_plan.h"
#include "topology/cli/commands.h"

/* plait plan --auto --over KEY=A,B,...: the best layout of each case, as a
 * table or as CSV. */

enum { CASES_MOST = 1000 };

/* "gpus", "gpu-type" or a key of the model's file. */
static int split(const char *text, char *key, size_t size, const char **values,
                 struct plait_error *err)
{
    size_t n = strcspn(text, "=");

    errno = EINVAL;
    if (!text[n] || !text[n + 1] || n == 0 || n >= size)
        return plait_errorf(err,
                            "--over=%.60s: must be KEY=VALUE,VALUE,... as in "
                            "gpus=8,64 or model.seq_len=4096,8192",
                            text);
    memcpy(key, text, n);
    key[n] = '\0';
    *values = text + n + 1;
    return 0;
}

int plait_plan_count_values(const char *values)
{
    int n = 1;

    for (; *values; values++)
        n += *values == ',';
    return n;
}

/* Value `i` of the list. */
void plait_plan_take_value(const char *values, int i, char *out, size_t size)
{
    size_t n;

    for (; i > 0; i--)
        values += strcspn(values, ",") + 1;
    n = strcspn(values, ",");
    n = n < size ? n : size - 1;
    memcpy(out, values, n);
    out[n] = '\0';
}

int plait_plan_take_gpus(const char *value, int *gpus, struct plait_error *err)
{
    if (plait_layout_parse_size("--over=gpus", value, gpus, err) < 0)
        return -1;
    if (*gpus != PLAIT_AUTO)
        return 0;
    errno = EINVAL;
    return plait_errorf(err, "--over=gpus=auto: must be a number");
}

/* One case: which value of each --over. */
struct sweep {
    const struct plan_job *job;
    char key[PLAN_OVERS][64];
    const char *values[PLAN_OVERS];
    int count[PLAN_OVERS], at[PLAN_OVERS];
    char value[PLAN_OVERS][64];
    struct model_options options; /* of the case */
    struct plait_gpu_type gpu;
    int gpus, printed;
};

static int apply_value(struct sweep *s, int i, struct plait_error *err)
{
    struct model_options *o = &s->options;
    const char *key = s->key[i], *value = s->value[i];

    if (strcmp(key, "gpus") == 0)
        return plait_plan_take_gpus(value, &s->gpus, err);
    if (strcmp(key, "gpu-type") == 0) {
        o->gpu_name = value;
        return 0;
    }
    return model_options_set(o, key, value, err);
}

static int set_case(struct sweep *s, struct plait_error *err)
{
    s->options = s->job->options;
    for (int i = 0; i < s->options.nsets; i++)
        s->options.sets[i] = s->options.set[i];
    s->gpus = 0;
    for (int i = 0; i < s->job->request.nnodes; i++)
        s->gpus += s->job->tasks[i];
    for (int i = 0; i < s->job->novers; i++) {
        plait_plan_take_value(s->values[i], s->at[i], s->value[i],
                              sizeof(s->value[i]));
        if (apply_value(s, i, err) < 0)
            return -1;
    }
    if (plait_cmd_gpu_type(s->options.site_file, s->options.gpu_name, &s->gpu,
                           NULL, err) < 0)
        return -1;
    plait_plan_set_node(s->job, &s->gpu);
    return 0;
}

/* The next case; 0: that was the last. The last list turns fastest. */
static int next_case(struct sweep *s)
{
    for (int i = s->job->novers - 1; i >= 0; i--) {
        if (++s->at[i] < s->count[i])
            return 1;
        s->at[i] = 0;
    }
    return 0;
}

static void print_head(const struct sweep *s)
{
    for (int i = 0; i < s->job->novers; i++)
        printf(s->job->csv ? "%s," : "%16s ", s->key[i]);
    if (s->job->csv)
        printf("tp,cp,ep,dp,pp,virtual,zero,micro_batch,recompute,offload,"
               "memory_gb,step_s,tokens_per_s,tokens_per_s_gpu,mfu,"
               "recompute_layers,offload_layers\n");
    else
        printf("  tp  cp  ep   dp  pp  v zero micro recompute offload      "
               "   memory      step  tokens/s/GPU   MFU\n");
}

static void print_row(const struct sweep *s, const struct plait_choice *c)
{
    const int *size = c->layout.size;
    const struct plait_estimate *e = &c->estimate;
    double each = e->tokens_per_s / s->gpus;

    if (!s->job->csv) {
        printf("%4d %3d %3d ", size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_EP]);
        plait_plan_print_settings(c);
        printf("%6.1f GB %7.3f s %13.0f %4.1f%%\n", e->memory.total / 1e9,
               e->step_s, each, 100 * e->mfu);
        return;
    }
    printf("%d,%d,%d,%d,%d,%d,%d,%d,%s,%s,", size[PLAIT_TP], size[PLAIT_CP],
           size[PLAIT_EP], size[PLAIT_DP], size[PLAIT_PP],
           c->parallel.virtual_stages, c->parallel.zero, c->micro_batch,
           plait_recompute_names[c->parallel.recompute],
           plait_offload_names[c->parallel.offload]);
    printf("%.3f,%.6g,%.6g,%.6g,%.4f,%d,%d\n", e->memory.total / 1e9, e->step_s,
           e->tokens_per_s, each, e->mfu, c->parallel.recompute_layers,
           c->parallel.offload_layers);
}

static int print_case(struct sweep *s, struct plait_error *err)
{
    struct plait_job_config *config;
    struct plait_layout wanted = s->job->request.layout;
    struct plait_choices *found;

    if (set_case(s, err) < 0)
        return -1;
    config = model_options_config(&s->options, err);
    if (!config)
        return -1;
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (!(s->job->given & 1u << i))
            wanted.size[i] = PLAIT_AUTO;
    found = plait_auto_create(config, &wanted, s->gpus, &s->gpu, 1);
    plait_job_config_destroy(config);
    if (!found)
        return plait_errorf(err, "out of memory");
    if (!s->printed++)
        print_head(s);
    for (int i = 0; i < s->job->novers; i++)
        printf(s->job->csv ? "%s," : "%16s ", s->value[i]);
    if (found->n)
        print_row(s, &found->choice[0]);
    else
        printf(s->job->csv ? ",,,,,,,,,,,,,,,,\n" : "none fits\n");
    plait_choices_destroy(found);
    return 0;
}

int plait_plan_sweep(const struct plan_job *job)
{
    struct sweep *s = calloc(1, sizeof(*s));
    struct plait_error err;
    long cases = 1;
    int rc = 0;

    if (!s)
        return plait_cmd_failed("out of memory");
    s->job = job;
    for (int i = 0; i < job->novers && rc == 0; i++) {
        rc = split(job->over[i], s->key[i], sizeof(s->key[i]), &s->values[i],
                   &err);
        if (rc == 0)
            cases *= s->count[i] = plait_plan_count_values(s->values[i]);
        if (rc == 0 && cases > CASES_MOST)
            rc = plait_errorf(&err, "--over: more than %d cases", CASES_MOST);
    }
    if (rc < 0) {
        free(s);
        return plait_cmd_misused("plan: %s", err.text);
    }
    do {
        rc = print_case(s, &err);
    } while (rc == 0 && next_case(s));
    free(s);
    return rc < 0 ? plait_cmd_failed("%s", err.text) : PLAIT_EXIT_GOOD;
}
