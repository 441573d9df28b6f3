/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/job_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/yaml.h"
#include "topology/job/fields.h"
#include "topology/job/fits.h"
#include "topology/job/model_fields.h"

#define STEPS_MOST 1e12
#define LEARNERS_MOST 1024
#define STAGES_MOST 65536

const char *const plait_family_names[] = {"gpt2", "llama", "mlp", "resnet"};
const char *const plait_recompute_names[] = {"none", "selective", "full"};
const char *const plait_offload_names[] = {"none", "optimizer", "activations",
                                           "both"};

static const char *const precisions[] = {"fp32", "bf16", "fp16", "tf32", "fp8"};
static const char *const graphs[] = {"auto", "on", "off"};
static const char *const grad_syncs[] = {"bucketed", "naive", "flat"};
static const char *const grad_reduces[] = {"fp32", "bf16"};
static const char *const all_reduces[] = {"auto", "flat", "hierarchical"};
static const char *const shard_groups[] = {"all", "node"};
static const char *const formats[] = {"auto", "plait",   "llmc",    "megatron",
                                      "idx",  "cifar10", "cifar100"};
static const char *const lr_scalings[] = {"linear", "sqrt"};
static const char *const lr_schedules[] = {"cosine", "linear", "constant",
                                           "step", "wsd"};
static const char *const lr_warmups[] = {"gradual", "constant"};

static const struct plait_yaml_field data_fields[] = {
    FIELD(data, "train", train, WEIGHTS, RANGE(1e-9, 1e15)),
    FIELD(data, "val", val, NAMED, ),
    FIELD(data, "format", format, CHOICE, CHOICES(formats)),
    FIELD(data, "mean", mean, REAL, RANGE(-1e6, 1e6)),
    FIELD(data, "std", std, REAL, RANGE(1e-9, 1e6), DEFAULT(1)),
    FIELD(data, "shift", shift, INT, RANGE(0, 1024)),
    FIELD(data, "flip", flip, BOOL, ),
    FIELD(data, "mask_documents", mask_documents, BOOL, ),
    FIELD(data, "end_token", end_token, INT, RANGE(0, 1 << 24), DEFAULT(-1)),
};

#define SIZE_FIELD(key, axis, ranks)                                    \
    FIELD(parallel, key, layout.size[axis], SIZE, RANGE(1, COUNT_MOST), \
          DEFAULT(ranks))

static const struct plait_yaml_field parallel_fields[] = {
    SIZE_FIELD("tp", PLAIT_TP, 1),
    SIZE_FIELD("cp", PLAIT_CP, 1),
    SIZE_FIELD("ep", PLAIT_EP, 1),
    SIZE_FIELD("dp", PLAIT_DP, PLAIT_AUTO),
    SIZE_FIELD("pp", PLAIT_PP, 1),
    FIELD(parallel, "schedule", schedule, CHOICE, .count = PLAIT_NSCHEDULES,
          .choices = plait_schedule_names, DEFAULT(PLAIT_SCHEDULE_1F1B)),
    FIELD(parallel, "virtual", virtual_stages, INT, RANGE(1, 4096), DEFAULT(1)),
    FIELD(parallel, "stages", stages, RUNS, RANGE(0, COUNT_MOST),
          .count = STAGES_MOST),
    FIELD(parallel, "sequence", sequence, BOOL, ),
    FIELD(parallel, "zero", zero, INT, RANGE(0, 3)),
    FIELD(parallel, "recompute", recompute, CHOICE,
          CHOICES(plait_recompute_names)),
    FIELD(parallel, "recompute_layers", recompute_layers, INT,
          RANGE(0, COUNT_MOST)),
    FIELD(parallel, "bucket_mib", bucket_mib, REAL, RANGE(0.001, 65536)),
    FIELD(parallel, "grad_sync", grad_sync, CHOICE, CHOICES(grad_syncs)),
    FIELD(parallel, "grad_reduce", grad_reduce, CHOICE, CHOICES(grad_reduces)),
    FIELD(parallel, "all_reduce", all_reduce, CHOICE, CHOICES(all_reduces)),
    FIELD(parallel, "shard_group", shard_group, CHOICE, CHOICES(shard_groups)),
    FIELD(parallel, "offload", offload, CHOICE, CHOICES(plait_offload_names)),
    FIELD(parallel, "offload_layers", offload_layers, INT,
          RANGE(0, COUNT_MOST)),
};

static const struct plait_yaml_field train_fields[] = {
    FIELD(train, "steps", steps, INT64, RANGE(1, STEPS_MOST), DEFAULT(100)),
    FIELD(train, "global_batch", global_batch, INT, RANGE(1, 1 << 24),
          DEFAULT(32)),
    FIELD(train, "micro_batch", micro_batch, INT, RANGE(1, COUNT_MOST),
          DEFAULT(4)),
    FIELD(train, "precision", precision, CHOICE, CHOICES(precisions)),
    FIELD(train, "loss_scale", loss_scale, REAL, RANGE(1, 0x1p40)),
    FIELD(train, "seed", seed, UINT64, DEFAULT(1)),
    FIELD(train, "graph", graph, CHOICE, CHOICES(graphs)),
    FIELD(train, "eval_every", eval_every, INT64, RANGE(0, STEPS_MOST)),
    FIELD(train, "eval_steps", eval_steps, INT64, RANGE(1, STEPS_MOST),
          DEFAULT(10)),
    FIELD(train, "timeout", timeout, SIZE, RANGE(0, 1000000), DEFAULT(-1),
          .count = -1),
    FIELD(train, "phase_timeout", phase_timeout, INT, RANGE(0, 1000000),
          DEFAULT(600)),
    FIELD(train, "check_replicas", check_replicas, INT64, RANGE(0, STEPS_MOST),
          DEFAULT(100)),
    FIELD(train, "noise", noise, REAL, RANGE(0, 1000)),
    FIELD(train, "skip_outliers", skip_outliers, BOOL, ),
    FIELD(train, "deterministic", deterministic, BOOL, ),
    FIELD(train, "init", init, TEXT, ),
    FIELD(train, "search_products", search_products, BOOL, DEFAULT(true)),
};

static const struct plait_yaml_field optim_fields[] = {
    FIELD(optim, "name", kind, CHOICE, CHOICES(plait_optimizer_names)),
    FIELD(optim, "lr", lr, REAL, RANGE(0, 1e6), DEFAULT(6e-4)),
    FIELD(optim, "betas", betas, REALS, RANGE(0, 1), DEFAULT(0.9, 0.95),
          .count = 2),
    FIELD(optim, "eps", eps, REAL, RANGE(0, 1), DEFAULT(1e-8)),
    FIELD(optim, "momentum", momentum, REAL, RANGE(0, 1), DEFAULT(0.9)),
    FIELD(optim, "nesterov", nesterov, BOOL, ),
    FIELD(optim, "trust", trust, REAL, RANGE(0, 1e6), DEFAULT(0.001)),
    FIELD(optim, "frequency", frequency, INT, RANGE(1, 1000000000),
          DEFAULT(10)),
    FIELD(optim, "max_dim", max_dim, INT, RANGE(0, 1000000000), DEFAULT(10000)),
    FIELD(optim, "muon_heads", muon_heads, BOOL, ),
    FIELD(optim, "muon_coefficients", muon_coefficients, CHOICE,
          CHOICES(plait_muon_coefficient_names)),
    FIELD(optim, "moments", moments, CHOICE, CHOICES(plait_moments_names)),
    FIELD(optim, "masters", masters, CHOICE, CHOICES(plait_masters_names)),
    FIELD(optim, "weight_decay", weight_decay, REAL, RANGE(0, 1e6),
          DEFAULT(0.1)),
    FIELD(optim, "clip", clip, REAL, RANGE(0, 1e12), DEFAULT(1)),
    FIELD(optim, "qk_clip", qk_clip, REAL, RANGE(0, 1e6)),
};

static const struct plait_yaml_field lr_fields[] = {
    FIELD(lr, "schedule", schedule, CHOICE, CHOICES(lr_schedules)),
    FIELD(lr, "warmup", warmup, INT64, RANGE(0, STEPS_MOST), DEFAULT(100)),
    FIELD(lr, "warmup_shape", warmup_shape, CHOICE, CHOICES(lr_warmups)),
    FIELD(lr, "warmup_from", warmup_from, REAL, RANGE(0, 1)),
    FIELD(lr, "min", min, REAL, RANGE(0, 1)),
    FIELD(lr, "decay_at", decay_at, NUMBERS, RANGE(1, STEPS_MOST)),
    FIELD(lr, "decay_by", decay_by, REAL, RANGE(0, 1), DEFAULT(0.1)),
    FIELD(lr, "stable", stable, REAL, RANGE(0, 1), DEFAULT(0.8)),
    FIELD(lr, "base_batch", base_batch, INT, RANGE(0, 1 << 24)),
    FIELD(lr, "scaling", scaling, CHOICE, CHOICES(lr_scalings)),
};

static const struct plait_yaml_field batch_fields[] = {
    FIELD(batch, "growth", growth, PAIRS, RANGE(1, STEPS_MOST)),
    FIELD(batch, "min", min, INT, RANGE(1, 1 << 24)),
    FIELD(batch, "max", max, INT, RANGE(1, 1 << 24)),
};

static const struct plait_yaml_field sync_fields[] = {
    FIELD(sync, "mode", mode, CHOICE, .count = PLAIT_NSYNC_MODES,
          .choices = plait_sync_mode_names),
    FIELD(sync, "steps", steps, INT64, RANGE(1, STEPS_MOST)),
    FIELD(sync, "from", from, INT64, RANGE(0, STEPS_MOST)),
    FIELD(sync, "lr", lr, REAL, RANGE(0, 1e6), DEFAULT(0.7)),
    FIELD(sync, "momentum", momentum, REAL, RANGE(0, 1), DEFAULT(0.9)),
    FIELD(sync, "alpha", alpha, REAL, RANGE(0, 1), DEFAULT(-1)),
    FIELD(sync, "fragments", fragments, INT,
          RANGE(1, PLAIT_SYNC_FRAGMENTS_MOST), DEFAULT(1)),
    FIELD(sync, "gradients", gradients, CHOICE, .count = PLAIT_NSYNC_GRADIENTS,
          .choices = plait_sync_gradient_names),
    FIELD(sync, "delay", delay, INT, RANGE(0, COUNT_MOST)),
    FIELD(sync, "mixing", mixing, REAL, RANGE(0, 1), DEFAULT(-1)),
    FIELD(sync, "learners", learners, SIZE, RANGE(1, LEARNERS_MOST),
          .count = PLAIT_SYNC_LEARNERS_AUTO),
};

static const struct plait_yaml_field checkpoint_fields[] = {
    FIELD(checkpoint, "dir", dir, TEXT, ),
    FIELD(checkpoint, "fallback", fallback, TEXT, ),
    FIELD(checkpoint, "every", every, INT64, RANGE(0, STEPS_MOST),
          .count = PLAIT_CHECKPOINT_AUTO),
    FIELD(checkpoint, "keep", keep, INT, RANGE(0, COUNT_MOST), DEFAULT(2)),
    FIELD(checkpoint, "async", async, BOOL, DEFAULT(true)),
    FIELD(checkpoint, "memory", memory, INT64, RANGE(0, STEPS_MOST)),
};

/* Rank 0 alone writes to these files; each rank's profile is its own. */
static const struct plait_yaml_field log_fields[] = {
    FIELD(log, "metrics", metrics, TEXT, .own = true),
    FIELD(log, "tensorboard", tensorboard, TEXT, .own = true),
    FIELD(log, "prometheus", prometheus, TEXT, .own = true),
    FIELD(log, "profile", profile, TEXT, .own = true),
    FIELD(log, "every", every, INT64, RANGE(1, STEPS_MOST), DEFAULT(1)),
    FIELD(log, "histograms", histograms, INT64, RANGE(0, STEPS_MOST)),
};

#define SECTION(section)                                             \
    {                                                                \
        .name = #section, .type = PLAIT_YAML_MAP,                    \
        .offset = offsetof(struct plait_job_config, section),        \
        .count = COUNT(section##_fields), .fields = section##_fields \
    }

static const struct plait_yaml_field sections[] = {
    SECTION(model),      SECTION(data), SECTION(parallel), SECTION(train),
    SECTION(optim),      SECTION(lr),   SECTION(batch),    SECTION(sync),
    SECTION(checkpoint), SECTION(log),
};

/* Which keys were named by the file or by --set. */
struct given {
    unsigned sizes;      /* 1u << axis */
    unsigned optim_keys; /* enum plait_optim_key */
    bool tie_embeddings, layers, vocab, steps;
    bool rope_high, rope_truncate;
};

void plait_job_config_destroy(struct plait_job_config *config)
{
    int saved = errno;

    if (!config)
        return;
    plait_yaml_clear(sections, COUNT(sections), config);
    free(config);
    errno = saved;
}

static struct plait_job_config *create_default(void)
{
    struct plait_job_config *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    plait_layout_init(&c->parallel.layout);
    plait_yaml_defaults(sections, COUNT(sections), c);
    return c;
}

static int apply_document(struct plait_job_config *config, struct given *given,
                          struct plait_yaml *yaml, struct plait_error *err)
{
    yaml_node_t *root = plait_yaml_root(yaml), *section;

    if (plait_yaml_read(yaml, root, "", sections, COUNT(sections), config,
                        err) < 0)
        return -1;
    section = plait_yaml_get(yaml, root, "parallel");
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (plait_yaml_get(yaml, section, plait_axis_names[i]))
            given->sizes |= 1u << i;
    section = plait_yaml_get(yaml, root, "optim");
    for (int i = 0; i < PLAIT_NOPTIM_KEYS; i++)
        if (plait_yaml_get(yaml, section, plait_optim_key_names[i]))
            given->optim_keys |= 1u << i;
    section = plait_yaml_get(yaml, root, "model");
    given->tie_embeddings |= !!plait_yaml_get(yaml, section, "tie_embeddings");
    given->rope_high |=
        !!plait_yaml_get(yaml, section, "rope_high_freq_factor");
    given->rope_truncate |= !!plait_yaml_get(yaml, section, "rope_truncate");
    given->layers |= !!plait_yaml_get(yaml, section, "layers");
    given->vocab |= !!plait_yaml_get(yaml, section, "vocab");
    section = plait_yaml_get(yaml, root, "train");
    given->steps |= !!plait_yaml_get(yaml, section, "steps");
    return 0;
}

/* Of image models: an image is a sequence of one token. */
static void derive_image(struct plait_model_config *m,
                         const struct given *given)
{
    static const int mnist[3] = {1, 28, 28};

    m->seq_len = 1;
    m->vocab = m->classes;
    for (int i = 0; i < 3; i++) /* plait_fits_config() refuses other counts */
        m->image[i] = m->input.n == 3 ? (int)m->input.at[i] : mnist[i];
    if (m->family == PLAIT_MLP && !given->layers)
        m->layers = 2;
    if (m->family == PLAIT_RESNET)
        m->layers = m->depth == 50 ? 16 : m->depth / 6 * 3;
    if (!m->width && m->family == PLAIT_MLP)
        m->width = 128;
    else if (!m->width)
        m->width = m->depth == 50 ? 64 : 16;
}

/* Of YaRN: what its paper and transformers have, where Llama 3's is another. */
static void derive_yarn(struct plait_model_config *m, const struct given *given)
{
    if (m->rope_scaling != PLAIT_ROPE_YARN)
        return;
    if (!given->rope_high)
        m->rope_high_freq_factor = 32;
    if (!given->rope_truncate)
        m->rope_truncate = m->rope_factor > 1;
}

/* The defaults that follow from other keys. */
static void derive(struct plait_job_config *config, const struct given *given)
{
    struct plait_model_config *m = &config->model;

    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->ffn && m->family == PLAIT_LLAMA)
        m->ffn = ((8 * m->hidden + 2) / 3 + 63) / 64 * 64;
    else if (!m->ffn)
        m->ffn = 4 * m->hidden;
    if (!given->tie_embeddings)
        m->tie_embeddings = m->family == PLAIT_GPT2;
    derive_yarn(m, given);
    if (plait_is_image_model(m))
        derive_image(m, given);
    if (m->mla.n == 5) { /* plait_fits_config() refuses other counts */
        m->mla_q = (int)m->mla.at[0];
        m->mla_kv = (int)m->mla.at[1];
        m->mla_nope = (int)m->mla.at[2];
        m->mla_rope = (int)m->mla.at[3];
        m->mla_value = (int)m->mla.at[4];
    }
    config->sizes_given = given->sizes;
    config->vocab_given = given->vocab;
    config->steps_given = given->steps;
    config->optim.keys_given = given->optim_keys;
}

int plait_precision_size(enum plait_precision precision)
{
    return precision == PLAIT_FP32 || precision == PLAIT_TF32 ? 4 : 2;
}

/* The rules across the keys; `name` is the file's. */
static int check_config(const struct plait_job_config *config, const char *name,
                        struct plait_error *err)
{
    const double *betas = config->optim.betas;
    struct plait_error why;

    if (plait_fits_config(config, &why) < 0)
        return plait_errorf(err, "%s: %s", name, why.text);
    errno = EINVAL;
    if (betas[0] >= 1 || betas[1] >= 1)
        return plait_errorf(err, "%s: optim.betas [%g, %g] must be below 1",
                            name, betas[0], betas[1]);
    if (config->optim.momentum >= 1)
        return plait_errorf(err, "%s: optim.momentum %g must be below 1", name,
                            config->optim.momentum);
    return 0;
}

/* A file without a model trains the default one; an empty "model:" is a
 * mistake. */
static int check_model(struct plait_yaml *yaml, struct plait_error *err)
{
    const yaml_node_t *root = plait_yaml_root(yaml), *model;

    model = root ? plait_yaml_get(yaml, root, "model") : NULL;
    if (!model || (model->type == YAML_MAPPING_NODE
                       ? plait_yaml_count(model) > 0
                       : !plait_yaml_text(model) || *plait_yaml_text(model)))
        return 0;
    return plait_yaml_errorf(yaml, model, err,
                             "model: is empty; say its family, layers, hidden, "
                             "heads and vocab, or leave it out for the 124M "
                             "GPT-2");
}

static struct plait_job_config *create_config(const char *name,
                                              struct plait_yaml *yaml,
                                              const char *const *set, int nset,
                                              struct plait_error *err)
{
    struct plait_job_config *config = create_default();
    struct given given = {0};
    struct plait_yaml *one;
    int rc;

    if (!config) {
        plait_errorf(err, "%s: out of memory", name);
        return NULL;
    }
    if (yaml && (check_model(yaml, err) < 0 ||
                 apply_document(config, &given, yaml, err) < 0))
        goto error;
    for (int i = 0; i < nset; i++) {
        one = plait_yaml_parse_set("--set", set[i], err);
        rc = one ? apply_document(config, &given, one, err) : -1;
        plait_yaml_destroy(one);
        if (rc < 0)
            goto error;
    }
    derive(config, &given);
    if (check_config(config, name, err) < 0)
        goto error;
    return config;
error:
    plait_job_config_destroy(config);
    return NULL;
}

struct plait_job_config *plait_job_config_create(const char *path,
                                                 const char *const *set,
                                                 int nset,
                                                 struct plait_error *err)
{
    struct plait_yaml *yaml = NULL;
    struct plait_job_config *config;

    if (path && !(yaml = plait_yaml_create(path, err)))
        return NULL;
    config = create_config(path ? path : "configuration", yaml, set, nset, err);
    plait_yaml_destroy(yaml);
    return config;
}

struct plait_job_config *plait_job_config_parse(const char *name,
                                                const char *text, size_t size,
                                                const char *const *set,
                                                int nset,
                                                struct plait_error *err)
{
    struct plait_yaml *yaml = plait_yaml_parse(name, text, size, err);
    struct plait_job_config *config;

    if (!yaml)
        return NULL;
    config = create_config(name, yaml, set, nset, err);
    plait_yaml_destroy(yaml);
    return config;
}

int plait_job_config_read(const char *path, char **text, size_t *size,
                          struct plait_error *err)
{
    return plait_yaml_file(path, text, size, err);
}

const struct plait_yaml_field *plait_job_config_sections(int *n)
{
    *n = COUNT(sections);
    return sections;
}

void plait_job_config_print_model(const struct plait_model_config *model,
                                  FILE *out)
{
    int n = COUNT(model_fields);

    /* The last keys of the table are those of image models. */
    for (int i = 0; i < n && !plait_is_image_model(model); i++)
        if (!strcmp(model_fields[i].name, "depth"))
            n = i;
    plait_yaml_print(out, "model", model_fields, n, model);
    if (model->mla_kv) /* not by the list, which a copy of a model has lost */
        fprintf(out, "  mla: [%d, %d, %d, %d, %d]\n", model->mla_q,
                model->mla_kv, model->mla_nope, model->mla_rope,
                model->mla_value);
}
