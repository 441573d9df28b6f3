/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "yaml.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Of the whole-number keys; far beyond any use, so that products of a few of
 * them fit 64 bits. */
#define MAX_COUNT (1 << 20)
#define MAX_STEPS 1e12

static const char *const families[] = {"gpt2", "llama", "mlp", "resnet"};
static const char *const precisions[] = {"fp32", "bf16", "fp16", "tf32", "fp8"};
static const char *const graphs[] = {"auto", "on", "off"};
static const char *const recomputes[] = {"none", "selective", "full"};
static const char *const grad_syncs[] = {"bucketed", "naive"};
static const char *const grad_reduces[] = {"fp32", "bf16"};
static const char *const all_reduces[] = {"auto", "flat", "hierarchical"};
static const char *const shard_groups[] = {"all", "node"};
static const char *const offloads[] = {"none", "optimizer", "activations",
                                       "both"};
static const char *const formats[] = {"auto", "plait", "llmc", "megatron"};
static const char *const optimizers[] = {"adamw"};
static const char *const lr_scalings[] = {"linear", "sqrt"};
static const char *const lr_schedules[] = {"cosine", "linear", "constant"};

#define FIELD(section, key, member, kind, ...)                       \
    {                                                                \
        .name = key, .type = PLAIT_YAML_##kind,                      \
        .offset = offsetof(struct plait_##section##_config, member), \
        __VA_ARGS__                                                  \
    }
#define RANGE(a, b) .min = (a), .max = (b)
#define CHOICES(list) .count = COUNT(list), .choices = (list)

static const struct plait_yaml_field model_fields[] = {
    FIELD(model, "family", family, CHOICE, CHOICES(families)),
    FIELD(model, "layers", layers, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "hidden", hidden, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "heads", heads, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "kv_heads", kv_heads, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "ffn", ffn, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "vocab", vocab, INT, RANGE(2, 1 << 24)),
    FIELD(model, "seq_len", seq_len, INT, RANGE(1, 1 << 24)),
    FIELD(model, "tie_embeddings", tie_embeddings, BOOL, ),
    FIELD(model, "rope_theta", rope_theta, REAL, RANGE(1, 1e12)),
    FIELD(model, "norm_eps", norm_eps, REAL, RANGE(1e-12, 1)),
    FIELD(model, "experts", experts, INT, RANGE(0, MAX_COUNT)),
    FIELD(model, "experts_top_k", experts_top_k, INT, RANGE(1, MAX_COUNT)),
    FIELD(model, "experts_capacity", experts_capacity, REAL, RANGE(0, 1e6)),
    FIELD(model, "experts_balance", experts_balance, REAL, RANGE(0, 1e6)),
};

static const struct plait_yaml_field data_fields[] = {
    FIELD(data, "train", train, TEXT, ),
    FIELD(data, "val", val, TEXT, ),
    FIELD(data, "format", format, TEXT, CHOICES(formats)),
};

/* In the order of the bits of parallel_given. */
static const struct plait_yaml_field parallel_fields[] = {
    FIELD(parallel, "tp", tp, SIZE, RANGE(1, MAX_COUNT)),
    FIELD(parallel, "cp", cp, SIZE, RANGE(1, MAX_COUNT)),
    FIELD(parallel, "ep", ep, SIZE, RANGE(1, MAX_COUNT)),
    FIELD(parallel, "pp", pp, SIZE, RANGE(1, MAX_COUNT)),
    FIELD(parallel, "dp", dp, SIZE, RANGE(1, MAX_COUNT)),
    FIELD(parallel, "schedule", schedule, CHOICE, .count = PLAIT_NSCHEDULES,
          .choices = plait_schedule_names),
    FIELD(parallel, "virtual", virtual_stages, INT, RANGE(1, 4096)),
    FIELD(parallel, "sequence", sequence, BOOL, ),
    FIELD(parallel, "zero", zero, INT, RANGE(0, 3)),
    FIELD(parallel, "recompute", recompute, CHOICE, CHOICES(recomputes)),
    FIELD(parallel, "bucket_mib", bucket_mib, REAL, RANGE(0.001, 65536)),
    FIELD(parallel, "grad_sync", grad_sync, CHOICE, CHOICES(grad_syncs)),
    FIELD(parallel, "grad_reduce", grad_reduce, CHOICE, CHOICES(grad_reduces)),
    FIELD(parallel, "all_reduce", all_reduce, CHOICE, CHOICES(all_reduces)),
    FIELD(parallel, "shard_group", shard_group, CHOICE, CHOICES(shard_groups)),
    FIELD(parallel, "offload", offload, CHOICE, CHOICES(offloads)),
};

static const struct plait_yaml_field train_fields[] = {
    FIELD(train, "steps", steps, INT64, RANGE(1, MAX_STEPS)),
    FIELD(train, "global_batch", global_batch, INT, RANGE(1, 1 << 24)),
    FIELD(train, "micro_batch", micro_batch, INT, RANGE(1, MAX_COUNT)),
    FIELD(train, "precision", precision, CHOICE, CHOICES(precisions)),
    FIELD(train, "loss_scale", loss_scale, REAL, RANGE(1, 0x1p40)),
    FIELD(train, "seed", seed, UINT64, ),
    FIELD(train, "graph", graph, CHOICE, CHOICES(graphs)),
    FIELD(train, "eval_every", eval_every, INT64, RANGE(0, MAX_STEPS)),
    FIELD(train, "eval_steps", eval_steps, INT64, RANGE(1, MAX_STEPS)),
    FIELD(train, "timeout", timeout, INT, RANGE(0, 1000000)),
};

static const struct plait_yaml_field optim_fields[] = {
    FIELD(optim, "name", name, TEXT, CHOICES(optimizers)),
    FIELD(optim, "lr", lr, REAL, RANGE(0, 1e6)),
    FIELD(optim, "betas", betas, REALS, RANGE(0, 1), .count = 2),
    FIELD(optim, "eps", eps, REAL, RANGE(0, 1)),
    FIELD(optim, "weight_decay", weight_decay, REAL, RANGE(0, 1e6)),
    FIELD(optim, "clip", clip, REAL, RANGE(0, 1e12)),
};

static const struct plait_yaml_field lr_fields[] = {
    FIELD(lr, "schedule", schedule, TEXT, CHOICES(lr_schedules)),
    FIELD(lr, "warmup", warmup, INT64, RANGE(0, MAX_STEPS)),
    FIELD(lr, "min", min, REAL, RANGE(0, 1)),
    FIELD(lr, "base_batch", base_batch, INT, RANGE(0, 1 << 24)),
    FIELD(lr, "scaling", scaling, CHOICE, CHOICES(lr_scalings)),
};

static const struct plait_yaml_field checkpoint_fields[] = {
    FIELD(checkpoint, "dir", dir, TEXT, ),
    FIELD(checkpoint, "every", every, INT64, RANGE(0, MAX_STEPS)),
    FIELD(checkpoint, "keep", keep, INT, RANGE(0, MAX_COUNT)),
    FIELD(checkpoint, "async", async, BOOL, ),
};

static const struct plait_yaml_field log_fields[] = {
    FIELD(log, "metrics", metrics, TEXT, ),
    FIELD(log, "tensorboard", tensorboard, TEXT, ),
    FIELD(log, "profile", profile, TEXT, ),
    FIELD(log, "every", every, INT64, RANGE(1, MAX_STEPS)),
};

#define SECTION(section)                                             \
    {                                                                \
        .name = #section, .type = PLAIT_YAML_MAP,                    \
        .offset = offsetof(struct plait_config, section),            \
        .count = COUNT(section##_fields), .fields = section##_fields \
    }

static const struct plait_yaml_field sections[] = {
    SECTION(model), SECTION(data), SECTION(parallel),   SECTION(train),
    SECTION(optim), SECTION(lr),   SECTION(checkpoint), SECTION(log),
};

/* Which keys were named by the file or by --set. */
struct given {
    unsigned parallel;
    bool tie_embeddings;
};

void plait_config_destroy(struct plait_config *config)
{
    int saved = errno;

    if (!config)
        return;
    free(config->data.train);
    free(config->data.val);
    free(config->data.format);
    free(config->optim.name);
    free(config->lr.schedule);
    free(config->checkpoint.dir);
    free(config->log.metrics);
    free(config->log.tensorboard);
    free(config->log.profile);
    free(config);
    errno = saved;
}

static struct plait_config *create_default(void)
{
    struct plait_config *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->model = (struct plait_model_config){.family = PLAIT_GPT2,
                                           .layers = 12,
                                           .hidden = 768,
                                           .heads = 12,
                                           .vocab = 50304,
                                           .seq_len = 1024,
                                           .rope_theta = 1e4,
                                           .norm_eps = 1e-5,
                                           .experts_top_k = 2,
                                           .experts_balance = 0.01};
    c->parallel =
        (struct plait_parallel_config){.tp = 1,
                                       .cp = 1,
                                       .ep = 1,
                                       .pp = 1,
                                       .dp = PLAIT_AUTO,
                                       .schedule = PLAIT_SCHEDULE_1F1B,
                                       .virtual_stages = 1,
                                       .bucket_mib = 25};
    c->train = (struct plait_train_config){.steps = 100,
                                           .global_batch = 32,
                                           .micro_batch = 4,
                                           .seed = 1,
                                           .eval_steps = 10};
    c->optim = (struct plait_optim_config){.lr = 6e-4,
                                           .betas = {0.9, 0.95},
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .clip = 1.0};
    c->lr.warmup = 100;
    c->checkpoint.keep = 2;
    c->checkpoint.async = true;
    c->log.every = 1;
    c->data.format = strdup("auto");
    c->optim.name = strdup("adamw");
    c->lr.schedule = strdup("cosine");
    if (c->data.format && c->optim.name && c->lr.schedule)
        return c;
    plait_config_destroy(c);
    return NULL;
}

static int apply(struct plait_config *config, struct given *given,
                 struct plait_yaml *yaml, struct plait_error *err)
{
    yaml_node_t *root = plait_yaml_root(yaml), *section;
    int i;

    if (plait_yaml_read(yaml, root, "", sections, COUNT(sections), config,
                        err) < 0)
        return -1;
    section = plait_yaml_get(yaml, root, "parallel");
    for (i = 0; i < COUNT(parallel_fields); i++)
        if (plait_yaml_get(yaml, section, parallel_fields[i].name))
            given->parallel |= 1u << i;
    section = plait_yaml_get(yaml, root, "model");
    if (plait_yaml_get(yaml, section, "tie_embeddings"))
        given->tie_embeddings = true;
    return 0;
}

/* The defaults that follow from other keys. */
static void derive(struct plait_config *config, const struct given *given)
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
    config->parallel_given = given->parallel;
}

int plait_precision_size(enum plait_precision precision)
{
    return precision == PLAIT_FP32 || precision == PLAIT_TF32 ? 4 : 2;
}

static int check_model(const struct plait_model_config *m, const char *name,
                       struct plait_error *err)
{
    if (m->family != PLAIT_GPT2 && m->family != PLAIT_LLAMA)
        return 0;
    if (m->hidden % m->heads)
        return plait_errorf(err,
                            "%s: model.hidden %d is not a multiple of "
                            "model.heads %d",
                            name, m->hidden, m->heads);
    if (m->heads % m->kv_heads)
        return plait_errorf(err,
                            "%s: model.heads %d is not a multiple of "
                            "model.kv_heads %d",
                            name, m->heads, m->kv_heads);
    if (m->family == PLAIT_GPT2 && m->kv_heads != m->heads)
        return plait_errorf(err,
                            "%s: model.kv_heads %d: a gpt2 model has as many "
                            "as heads, %d",
                            name, m->kv_heads, m->heads);
    if (m->family == PLAIT_LLAMA && m->hidden / m->heads % 2)
        return plait_errorf(err,
                            "%s: model.hidden / model.heads is %d; rotary "
                            "embeddings want an even number",
                            name, m->hidden / m->heads);
    if (m->experts && m->experts_top_k > m->experts)
        return plait_errorf(err,
                            "%s: model.experts_top_k %d is more than "
                            "model.experts %d",
                            name, m->experts_top_k, m->experts);
    return 0;
}

static int check_parallel(const struct plait_config *config, const char *name,
                          struct plait_error *err)
{
    const struct plait_parallel_config *p = &config->parallel;

    if (p->virtual_stages > 1 && p->schedule != PLAIT_SCHEDULE_INTERLEAVED)
        return plait_errorf(err,
                            "%s: parallel.virtual %d wants parallel.schedule "
                            "interleaved, not %s",
                            name, p->virtual_stages,
                            plait_schedule_names[p->schedule]);
    if (p->offload & PLAIT_OFFLOAD_ACTIVATIONS &&
        p->schedule == PLAIT_SCHEDULE_ZB_H1)
        return plait_errorf(err,
                            "%s: parallel.offload of activations wants another "
                            "parallel.schedule than zb-h1, which needs them "
                            "twice",
                            name);
    if (p->ep > 1 && !config->model.experts)
        return plait_errorf(err,
                            "%s: parallel.ep %d, but model.experts is 0: "
                            "there are no experts to spread",
                            name, p->ep);
    if (p->ep > 1 && config->model.experts % p->ep)
        return plait_errorf(err,
                            "%s: model.experts %d is not a multiple of "
                            "parallel.ep %d",
                            name, config->model.experts, p->ep);
    return 0;
}

/* How gradients travel depends on who owns what of them. */
static int check_gradients(const struct plait_parallel_config *p,
                           const char *name, struct plait_error *err)
{
    if (p->grad_sync == PLAIT_GRAD_NAIVE && p->zero)
        return plait_errorf(err,
                            "%s: parallel.grad_sync naive wants parallel.zero "
                            "0, not %d",
                            name, p->zero);
    if (p->grad_sync == PLAIT_GRAD_NAIVE && p->grad_reduce == PLAIT_GRAD_BF16)
        return plait_errorf(err,
                            "%s: parallel.grad_reduce bf16 wants "
                            "parallel.grad_sync bucketed, not naive",
                            name);
    if (p->all_reduce == PLAIT_ALL_REDUCE_HIERARCHICAL &&
        (p->shard_group == PLAIT_SHARD_NODE ||
         p->grad_sync == PLAIT_GRAD_NAIVE))
        return plait_errorf(err,
                            "%s: parallel.all_reduce hierarchical wants "
                            "parallel.shard_group all and "
                            "parallel.grad_sync bucketed",
                            name);
    if (p->shard_group == PLAIT_SHARD_NODE && !p->zero)
        return plait_errorf(err,
                            "%s: parallel.shard_group node wants "
                            "parallel.zero 1, 2 or 3: without, nothing is "
                            "sharded",
                            name);
    return 0;
}

static int check_train(const struct plait_config *config, const char *name,
                       struct plait_error *err)
{
    const struct plait_train_config *t = &config->train;
    const double *betas = config->optim.betas;
    int64_t dp = config->parallel.dp ? config->parallel.dp : 1;

    if (t->global_batch % (t->micro_batch * dp))
        return plait_errorf(err,
                            "%s: train.global_batch %d is not a multiple of "
                            "train.micro_batch %d%s",
                            name, t->global_batch, t->micro_batch,
                            dp > 1 ? " * parallel.dp" : "");
    if (t->loss_scale > 0 && t->precision != PLAIT_FP16)
        return plait_errorf(err,
                            "%s: train.loss_scale %g wants train.precision "
                            "fp16, not %s: no other has so few exponents",
                            name, t->loss_scale, precisions[t->precision]);
    if (betas[0] >= 1 || betas[1] >= 1)
        return plait_errorf(err, "%s: optim.betas [%g, %g] must be below 1",
                            name, betas[0], betas[1]);
    return 0;
}

static struct plait_config *create(const char *name, struct plait_yaml *yaml,
                                   const char *const *set, int nset,
                                   struct plait_error *err)
{
    struct plait_config *config = create_default();
    struct given given = {0};
    struct plait_yaml *one;
    int i, ret;

    if (!config) {
        plait_errorf(err, "%s: out of memory", name);
        return NULL;
    }
    if (yaml && apply(config, &given, yaml, err) < 0)
        goto error;
    for (i = 0; i < nset; i++) {
        one = plait_yaml_parse_set("--set", set[i], err);
        ret = one ? apply(config, &given, one, err) : -1;
        plait_yaml_destroy(one);
        if (ret < 0)
            goto error;
    }
    derive(config, &given);
    errno = EINVAL;
    if (check_model(&config->model, name, err) < 0 ||
        check_parallel(config, name, err) < 0 ||
        check_gradients(&config->parallel, name, err) < 0 ||
        check_train(config, name, err) < 0)
        goto error;
    return config;
error:
    plait_config_destroy(config);
    return NULL;
}

struct plait_config *plait_config_create(const char *path,
                                         const char *const *set, int nset,
                                         struct plait_error *err)
{
    struct plait_yaml *yaml = NULL;
    struct plait_config *config;

    if (path && !(yaml = plait_yaml_create(path, err)))
        return NULL;
    config = create(path ? path : "configuration", yaml, set, nset, err);
    plait_yaml_destroy(yaml);
    return config;
}

struct plait_config *plait_config_parse(const char *name, const char *text,
                                        size_t size, const char *const *set,
                                        int nset, struct plait_error *err)
{
    struct plait_yaml *yaml = plait_yaml_parse(name, text, size, err);
    struct plait_config *config;

    if (!yaml)
        return NULL;
    config = create(name, yaml, set, nset, err);
    plait_yaml_destroy(yaml);
    return config;
}

int plait_config_read(const char *path, char **text, size_t *size,
                      struct plait_error *err)
{
    return plait_yaml_file(path, text, size, err);
}
