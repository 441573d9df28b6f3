/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/stage.h"
#include "topology/predict/estimate.h"
#include "topology/predict/simulate.h"

enum { FIELDS = 22, LINE = 512 };

const char *const records_sets[] = {
    "sc21", "llama3", "megatron", "torchtitan", "mpt_h100",  "mpt_a100",
    "llmc", "moe",    "bloom",    "internevo",  "megascale", "moe_graphs",
    "lumi", "alps",   "mlperf",   NULL};

struct line {
    char text[LINE];
    char *field[FIELDS];
    int n;
};

/* Splits a line into its fields in place; the last fields may be empty. */
static void split(struct line *l)
{
    char *at = l->text;

    l->text[strcspn(l->text, "\n")] = '\0';
    for (l->n = 0; l->n < FIELDS; l->n++) {
        l->field[l->n] = at;
        at += strcspn(at, ",");
        if (*at)
            *at++ = '\0';
    }
}

/* Reads the next line that is neither a comment nor the table's head. */
static int next_line(FILE *f, struct line *l, const char *head)
{
    while (fgets(l->text, sizeof(l->text), f))
        if (l->text[0] != '#' && strncmp(l->text, head, strlen(head)) != 0) {
            split(l);
            return 1;
        }
    return 0;
}

static FILE *open_file(const char *folder, const char *name,
                       struct plait_error *err)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s.csv", folder, name);
    f = fopen(path, "r");
    if (!f)
        plait_errorf(err, "%s: %s", path, strerror(errno));
    return f;
}

struct settings {
    char text[48][96];
    const char *at[48];
    int n;
};

static void add(struct settings *s, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    snprintf(s->text[s->n], sizeof(s->text[0]), "%.40s=%.40s", key, value);
    s->at[s->n] = s->text[s->n];
    s->n++;
}

static int add_model(struct settings *s, const char *folder, const char *name,
                     struct plait_error *err)
{
    static const char *const keys[] = {
        "model.family", "model.layers",   "model.hidden",
        "model.heads",  "model.kv_heads", "model.head_dim",
        "model.ffn",    "model.vocab",    "model.tie_embeddings"};
    FILE *f = open_file(folder, "models", err);
    struct line l;
    char *word, *rest;
    int found = 0;

    if (!f)
        return -1;
    while (!found && next_line(f, &l, "name,"))
        found = strcmp(l.field[0], name) == 0;
    fclose(f);
    if (!found)
        return plait_errorf(err, "models.csv: no model %s", name);
    for (int i = 0; i < 9; i++)
        add(s, keys[i], l.field[i + 1]);
    for (word = strtok_r(l.field[10], " ", &rest); word;
         word = strtok_r(NULL, " ", &rest)) {
        char key[40];
        char *equals = strchr(word, '=');

        *equals = '\0';
        snprintf(key, sizeof(key), "model.%.30s", word);
        for (char *c = equals + 1; *c; c++)
            if (*c == ';')
                *c = ',';
        add(s, key, equals + 1);
    }
    return 0;
}

/* half,model,gpu,gpus,seq_len,micro_batch,global_batch,precision,tp,cp,ep,pp,
 * virtual,zero,recompute,offload,gradients,framework,measured,unit,memory_gb,
 * source */
static void add_training(struct settings *s, char **f)
{
    static const char *const keys[] = {
        "model.seq_len",   "train.micro_batch", "train.global_batch",
        "train.precision", "parallel.tp",       "parallel.cp",
        "parallel.ep",     "parallel.pp",       "parallel.virtual",
        "parallel.zero"};
    const char *recompute = f[14];

    for (int i = 0; i < 10; i++)
        add(s, keys[i], f[i + 4]);
    if (atoi(f[12]) > 1)
        add(s, "parallel.schedule", "interleaved");
    if (atoi(f[8]) > 1)
        add(s, "parallel.sequence",
            strncmp(f[17], "megatron-2021", 13) ? "true" : "false");
    if (strcmp(recompute, "op") == 0 || strcmp(recompute, "layer") == 0)
        recompute = "full";
    add(s, "parallel.recompute", recompute);
    if (*f[15]) {
        add(s, "parallel.offload", "activations");
        add(s, "parallel.offload_layers", f[15]);
    }
    add(s, "parallel.grad_reduce", f[16]);
    if (strstr(f[17], "+late"))
        add(s, "parallel.grad_sync", "flat");
    if (strstr(f[17], "+node"))
        add(s, "parallel.shard_group", "node");
}

/* In Plait ep divides cp * dp. Where Megatron spreads experts over tp too, a
 * GPU has as many experts as with an ep that is tp times smaller. */
static void set_layout(struct record *r)
{
    int *size = r->layout.size;

    r->layout = r->config->parallel.layout;
    size[PLAIT_DP] =
        r->gpus / (size[PLAIT_TP] * size[PLAIT_CP] * size[PLAIT_PP]);
    if (size[PLAIT_CP] * size[PLAIT_DP] % size[PLAIT_EP])
        size[PLAIT_EP] /= size[PLAIT_TP];
}

/* "megatron+alltoall+turns+mla_up_proj+moments16" */
static int set_framework(struct record *r, char *name, struct plait_error *err)
{
    struct plait_job_config *c = r->config;

    if (strstr(name, "+alltoall"))
        c->dispatch = PLAIT_DISPATCH_ALLTOALL;
    c->dispatch_hidden = strstr(name, "+turns") != NULL;
    if (strstr(name, "+moments16"))
        c->optim.moments = PLAIT_MOMENTS_BF16_NEAREST;
    c->tp_exposed = strstr(name, "+tp") != NULL;
    c->messages_exposed = strstr(name, "+p2p") != NULL;
    c->graphs = strstr(name, "+graphs") != NULL;
    c->fused_experts = strstr(name, "+fuser") != NULL;
    c->fp8_attention = strstr(name, "+attention8") != NULL;
    c->fp8_head = strstr(name, "+head8") != NULL;
    for (char *at = strchr(name, '+'); at; at = strchr(at + 1, '+'))
        c->recompute_modules |= plait_module_find(at + 1, strcspn(at + 1, "+"));
    name[strcspn(name, "+")] = '\0';
    return plait_framework_find(name, &c->framework, err);
}

static int read_record(struct record *r, const char *folder, struct line *l,
                       struct plait_error *err)
{
    struct settings s = {.n = 0};
    char **f = l->field;

    snprintf(
        r->name, sizeof(r->name),
        "%.20s %.10s x%.6s T%.6s b%.4s %.4s tp%.2s pp%.3s z%.1s %.9s%s%.20s",
        f[1], f[2], f[3], f[4], f[5], f[7], f[8], f[11], f[13], f[14],
        *f[21] ? ", " : "", f[21]);
    r->fit = strcmp(f[0], "fit") == 0;
    r->gpus = atoi(f[3]);
    r->blocking = strstr(f[17], "+blocking") != NULL;
    if (strchr(f[2], '@')) {
        r->nic = atof(strchr(f[2], '@') + 1) * 1e9;
        *strchr(f[2], '@') = '\0';
    }
    r->slower = strcmp(f[2], "h100-500w") == 0;
    snprintf(r->gpu, sizeof(r->gpu), "%s", r->slower ? "h100" : f[2]);
    r->measured = atof(f[18]);
    r->causal = strcmp(f[19], "causal") == 0;
    r->tflops = r->causal || strcmp(f[19], "tflops") == 0;
    r->memory = atof(f[20]) * 1e9;
    if (add_model(&s, folder, f[1], err) < 0)
        return -1;
    add_training(&s, f);
    r->config = plait_job_config_parse(r->name, "", 0, s.at, s.n, err);
    if (!r->config)
        return -1;
    if (set_framework(r, f[17], err) < 0)
        return -1;
    if (strcmp(f[14], "op") == 0 || strcmp(f[14], "layer") == 0)
        r->config->parallel.recompute_layers = r->config->model.layers / 2;
    r->moe = r->config->model.experts > 0;
    set_layout(r);
    return 0;
}

static int read_set(struct records *out, const char *folder, const char *name,
                    struct plait_error *err)
{
    FILE *f = open_file(folder, name, err);
    struct line l;
    int rc = f ? 0 : -1;

    while (rc == 0 && next_line(f, &l, "half,")) {
        struct record *more =
            realloc(out->at, (size_t)(out->n + 1) * sizeof(*out->at));

        if (!more) {
            rc = plait_errorf(err, "out of memory");
            break;
        }
        out->at = more;
        memset(&more[out->n], 0, sizeof(*more));
        more[out->n].set = name;
        rc = read_record(&more[out->n++], folder, &l, err);
    }
    if (f)
        fclose(f);
    return rc;
}

struct records *records_create(const char *folder, struct plait_error *err)
{
    struct records *out = calloc(1, sizeof(*out));

    if (!out)
        return NULL;
    for (int i = 0; records_sets[i]; i++)
        if (read_set(out, folder, records_sets[i], err) < 0) {
            records_destroy(out);
            return NULL;
        }
    return out;
}

void records_destroy(struct records *records)
{
    if (!records)
        return;
    for (int i = 0; i < records->n; i++)
        plait_job_config_destroy(records->at[i].config);
    free(records->at);
    free(records);
}

/* Seconds of a layer and pass where the host waits for each kernel
 * (CUDA_LAUNCH_BLOCKING=1), fitted to the fitted half of bloom. */
#define BLOCKING 2.5e-3

void record_gpu(const struct record *r, struct plait_gpu_type *gpu)
{
    plait_gpu_type_find(r->gpu, gpu, NULL);
    if (r->nic > 0)
        gpu->nic_bw = r->nic;
    if (r->blocking)
        gpu->layer_s = BLOCKING;
    if (!r->slower)
        return;
    /* "between SXM and NVL": the middle of the two data sheets */
    gpu->flops16 = 912e12;
    gpu->flops8 = 1825e12;
    gpu->memory *= 96 / 80.0;
    gpu->memory_bw = 2400e9;
}

int record_predict(const struct record *r, const struct plait_gpu_type *gpu,
                   double *speed, double *memory)
{
    struct plait_error err = {""};
    struct plait_estimate e;

    if (plait_estimate(r->config, &r->layout, gpu, &e, &err) < 0) {
        printf("# %s %s: %s\n", r->set, r->name, err.text);
        return -1;
    }
    *speed = r->causal   ? e.mfu_causal * gpu->flops16 / 1e12
             : r->tflops ? e.tflops_per_gpu
                         : e.tokens_per_s / r->gpus;
    if (memory)
        *memory = e.memory.total;
    return 0;
}

double record_simulate(const struct record *r, const struct plait_gpu_type *gpu)
{
    int stages =
        r->layout.size[PLAIT_PP] * plait_model_chunks(&r->config->parallel);
    struct plait_stage_time *times = calloc((size_t)stages, sizeof(*times));
    struct plait_simulation_request request;
    struct plait_simulation *s = NULL;
    struct plait_estimate e;
    double ratio = 0;

    if (times && plait_estimate(r->config, &r->layout, gpu, &e, NULL) == 0 &&
        plait_simulation_request_set(&request, times, r->config, &r->layout,
                                     gpu, NULL) == 0)
        s = plait_simulation_create(&request, NULL);
    if (s)
        ratio = s->step / e.step_s;
    plait_simulation_destroy(s);
    free(times);
    return ratio;
}
