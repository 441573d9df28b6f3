/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/model_source.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/checkpoint.h"
#include "topology/base/files.h"
#include "topology/job/model_size.h"
#include "topology/job/mup.h"

/* The checkpoint that DIR/latest leads to. */
static int find_newest(const char *dir, struct plait_model_source *source,
                       struct plait_error *err)
{
    int64_t step;
    int passed;
    char *path;

    err->text[0] = '\0';
    path = plait_checkpoint_newest(dir, INT64_MAX, &step, &passed, err);
    if (path) {
        snprintf(source->path, sizeof(source->path), "%s", path);
        free(path);
        return 0;
    }
    if (!err->text[0])
        plait_errorf(err, "%s: it contains no checkpoint", dir);
    errno = ENOENT;
    return -1;
}

int plait_model_source_find(const char *dir, struct plait_model_source *source,
                            struct plait_error *err)
{
    struct stat st;

    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return plait_errorf(err,
                            "%s: it is neither the directory of a model nor a "
                            "file of llm.c's",
                            dir);
    }
    if (access(dir, R_OK | X_OK) < 0)
        return plait_errorf(err, "%s: %s", dir, strerror(errno));
    source->hf = false;
    snprintf(source->path, sizeof(source->path), "%s", dir);
    if (plait_files_has(dir, "manifest.json"))
        return 0;
    if (plait_files_has(dir, "latest"))
        return find_newest(dir, source, err);
    source->hf = true;
    if (plait_files_has(dir, "config.json"))
        return 0;
    errno = ENOENT;
    return plait_errorf(err,
                        "%s: it contains neither a model of Hugging Face's "
                        "(config.json) nor a checkpoint (manifest.json, "
                        "latest)",
                        dir);
}

/* -- two descriptions of a model ------------------------------------------ */

struct key {
    const char *name;
    size_t offset;
    enum { KEY_INT, KEY_REAL, KEY_BOOL } type;
    enum {
        OF_ALL,
        OF_LLAMA,
        OF_SCALED,
        OF_TEMPERED,
        OF_EXPERTS,
        OF_DENSE
    } of; /* models with it */
};

#define KEY(member, type, of)                                                \
    {                                                                        \
#member, offsetof(struct plait_model_config, member), KEY_##type, of \
    }

static const struct key keys[] = {
    KEY(layers, INT, OF_ALL),
    KEY(hidden, INT, OF_ALL),
    KEY(heads, INT, OF_ALL),
    KEY(kv_heads, INT, OF_ALL),
    KEY(head_dim, INT, OF_ALL),
    KEY(ffn, INT, OF_ALL),
    KEY(vocab, INT, OF_ALL),
    KEY(tie_embeddings, BOOL, OF_ALL),
    KEY(norm_eps, REAL, OF_ALL),
    KEY(rope_theta, REAL, OF_LLAMA),
    KEY(rope_factor, REAL, OF_LLAMA),
    KEY(rope_scaling, INT, OF_SCALED),
    KEY(rope_truncate, BOOL, OF_SCALED),
    KEY(rope_attention_factor, REAL, OF_SCALED),
    KEY(rope_low_freq_factor, REAL, OF_SCALED),
    KEY(rope_high_freq_factor, REAL, OF_SCALED),
    KEY(rope_original_len, INT, OF_SCALED),
    KEY(rope_columns, INT, OF_LLAMA),
    KEY(rope_theta_window, REAL, OF_LLAMA),
    KEY(attention_bias, INT, OF_LLAMA),
    KEY(mlp_bias, BOOL, OF_LLAMA),
    KEY(mla_q, INT, OF_LLAMA),
    KEY(mla_kv, INT, OF_LLAMA),
    KEY(mla_nope, INT, OF_LLAMA),
    KEY(mla_rope, INT, OF_LLAMA),
    KEY(mla_value, INT, OF_LLAMA),
    KEY(qk_norm, BOOL, OF_LLAMA),
    KEY(qk_norm_whole, BOOL, OF_LLAMA),
    KEY(qk_l2_norm, BOOL, OF_LLAMA),
    KEY(norm_place, INT, OF_LLAMA),
    KEY(norm_plus_one, BOOL, OF_LLAMA),
    KEY(gate, INT, OF_LLAMA),
    KEY(sliding_window, INT, OF_LLAMA),
    KEY(full_attention_every, INT, OF_LLAMA),
    KEY(full_attention_first, INT, OF_LLAMA),
    KEY(no_rope_every, INT, OF_LLAMA),
    KEY(attention_chunk, INT, OF_LLAMA),
    KEY(attention_temperature, REAL, OF_LLAMA),
    KEY(attention_temperature_floor, INT, OF_TEMPERED),
    KEY(embedding_multiplier, REAL, OF_LLAMA),
    KEY(attention_multiplier, REAL, OF_ALL),
    KEY(residual_multiplier, REAL, OF_ALL),
    KEY(logits_scaling, REAL, OF_ALL),
    KEY(attention_softcap, REAL, OF_LLAMA),
    KEY(logit_softcap, REAL, OF_LLAMA),
    KEY(attention_sinks, BOOL, OF_LLAMA),
    KEY(experts, INT, OF_ALL),
    KEY(experts_top_k, INT, OF_EXPERTS),
    KEY(shared_experts, INT, OF_EXPERTS),
    KEY(dense_layers, INT, OF_EXPERTS),
    KEY(experts_every, INT, OF_EXPERTS),
    KEY(dense_ffn, INT, OF_DENSE),
    KEY(experts_scores, INT, OF_EXPERTS),
    KEY(experts_weights, INT, OF_EXPERTS),
    KEY(experts_scale, REAL, OF_EXPERTS),
    KEY(experts_groups, INT, OF_EXPERTS),
    KEY(experts_top_groups, INT, OF_EXPERTS),
};

static bool matters(const struct plait_model_config *m, const struct key *key)
{
    if (key->of == OF_EXPERTS)
        return m->experts > 0;
    if (key->of == OF_DENSE)
        return plait_model_dense_layers(m) > 0;
    if (key->of == OF_TEMPERED && !(m->attention_temperature > 0))
        return false;
    if (key->of == OF_SCALED && !(m->rope_factor > 1))
        return false;
    return key->of == OF_ALL || m->family == PLAIT_LLAMA;
}

static double value_of(const struct plait_model_config *m,
                       const struct key *key)
{
    const char *at = (const char *)m + key->offset;

    if (key->type == KEY_REAL)
        return *(const double *)(const void *)at;
    if (key->type == KEY_BOOL)
        return *(const bool *)at;
    return *(const int *)(const void *)at;
}

/* Writes what the keys stand for: two models with the same constants and heads
 * compute the same, by whichever keys they came to them. */
static void resolve(struct plait_model_config *m)
{
    plait_mup_resolve(m);
    plait_model_fill_in(m);
    if (m->attention_multiplier == 0 && !plait_is_image_model(m))
        m->attention_multiplier = 1 / sqrt(plait_model_head_dim(m));
    m->rope_attention_factor =
        m->rope_scaling != PLAIT_ROPE_LLAMA3 ? plait_model_rope_size(m) : 0;
    m->experts_scale = plait_model_factor(m->experts_scale);
    if (m->experts_every == 1) /* all layers have them */
        m->experts_every = 0;
    if (m->experts_groups < 2) /* tokens choose from all experts */
        m->experts_groups = m->experts_top_groups = 0;
}

/* The key of a list that differs; NULL: none does. */
static const char *find_list(const struct plait_model_config *a,
                             const struct plait_model_config *b)
{
    if (a->rope_scaling != PLAIT_ROPE_LONGROPE || !(a->rope_factor > 1))
        return NULL;
    return !plait_reals_equal(&a->rope_short, &b->rope_short) ? "rope_short"
           : !plait_reals_equal(&a->rope_long, &b->rope_long) ? "rope_long"
                                                              : NULL;
}

int plait_model_same(const char *name, const struct plait_model_config *there,
                     const struct plait_model_config *configured,
                     struct plait_error *err)
{
    struct plait_model_config is = *there, wanted = *configured;
    const char *list;

    resolve(&is);
    resolve(&wanted);
    errno = EINVAL;
    if (there->family != configured->family)
        return plait_errorf(err,
                            "model.family is not the family of the model in "
                            "%s: one is gpt2, the other llama",
                            name);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        double a = value_of(&is, &keys[i]);
        double b = value_of(&wanted, &keys[i]);

        if (a == b || !matters(there, &keys[i]))
            continue;
        return plait_errorf(err,
                            "model.%s is %.10g, but %.10g in the model in %s",
                            keys[i].name, b, a, name);
    }
    list = find_list(&is, &wanted);
    if (list)
        return plait_errorf(err, "model.%s is not the list of the model in %s",
                            list, name);
    if (is.mtp_layers == wanted.mtp_layers)
        return 0;
    return plait_errorf(err,
                        "%s has %s layer of multi-token prediction: set "
                        "model.mtp_layers to %d",
                        name, is.mtp_layers ? "a" : "no", is.mtp_layers);
}
