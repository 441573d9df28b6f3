/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CHECKPOINT_HF_READ_H
#define PLAIT_RUNTIME_CHECKPOINT_HF_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "topology/base/error.h"
#include "topology/job/job_config.h"
#include "topology/job/layer_list.h"

/* What the readers of the parts of a config.json share. */

/* The most of any number of things. */
enum { PLAIT_HF_COUNT_MOST = 1 << 24 };

struct plait_hf_read {
    char path[4096];
    const json_t *root;
    struct plait_model_config *model;
    struct plait_error *err;
};

/* The value's text in the file, for errors. */
const char *plait_hf_text(const json_t *value, char buf[80]);
/* -1 with EINVAL: "PATH: NAME is VALUE; WANT". */
int plait_hf_refuse(const struct plait_hf_read *r, const char *name,
                    const json_t *value, const char *want);
/* A number above 0 that must be there. */
int plait_hf_real(const struct plait_hf_read *r, const json_t *in,
                  const char *name, double *to);

/* A whole number of config.json. */
struct plait_hf_count {
    const char *name;
    size_t offset; /* int, of plait_model_config */
    bool optional; /* missing or null: as Plait's default, 0 */
};

#define PLAIT_HF_MODEL(member) offsetof(struct plait_model_config, member)

/* Lists end with a name of NULL. */
int plait_hf_counts(const struct plait_hf_read *r,
                    const struct plait_hf_count *key);

/* A setting of which only these values are supported: any other is refused by
 * name. A missing or null key means the first one. */
struct plait_hf_only {
    const char *name;
    const char *values[2]; /* as JSON has them, quotes included */
};

int plait_hf_check_only(const struct plait_hf_read *r,
                        const struct plait_hf_only *key);
/* true or false; `missing` where it is missing or null. */
int plait_hf_bool(const struct plait_hf_read *r, const char *name, bool missing,
                  bool *to);

struct plait_hf_type;
/* A model's experts, and their keys (not 0: out of memory). */
int plait_hf_experts(const struct plait_hf_read *r,
                     const struct plait_hf_type *type);
int plait_hf_experts_write(json_t *root, const struct plait_model_config *model,
                           const struct plait_hf_type *type);

/* What differs between a model's layers: sliding windows, rotary positions. */
int plait_hf_layers(const struct plait_hf_read *r,
                    const struct plait_hf_type *type);

/* The gate of a model's mlp and its biases, and what a Gemma has beside them:
 * its multipliers and caps. */
int plait_hf_gate(const struct plait_hf_read *r,
                  const struct plait_hf_type *type);

/* The numbers of a list of layers, which must outlive what is returned. */
struct plait_layer_list plait_hf_layer_list(const json_t *list);

/* Of a glm4_moe or a deepseek: its experts and first layers; biases and norms
 * of attention; and the keys of such a model (not 0: out of memory). */
int plait_hf_glm_experts(const struct plait_hf_read *r,
                         const struct plait_hf_type *type);
int plait_hf_glm_attention(const struct plait_hf_read *r);
int plait_hf_glm_write(json_t *root, const struct plait_model_config *model,
                       const struct plait_hf_type *type);

/* Of a llama4_text: experts, of which layers and how wide mlps are in the
 * others; attention, when the rotated layers are known; and its keys (not 0:
 * out of memory). */
int plait_hf_llama4_experts(const struct plait_hf_read *r);
int plait_hf_llama4_attention(const struct plait_hf_read *r);
int plait_hf_llama4_write(json_t *root, const struct plait_model_config *model);
/* Of a llama4, whether its text model is there and what is beside it is known
 * and says the same; 0 for any other. */
int plait_hf_check_text_part(const struct plait_hf_read *r);
/* The text model of a llama4, in place of the whole, which is given up; any
 * other config.json as it is. NULL: out of memory. */
json_t *plait_hf_text_part(json_t *root);

/* The latent attention of a deepseek_v2 or v3, and its keys (not 0: out of
 * memory);
 * whether such a model can have the factor of scores that this one has, which
 * follows from how far YaRN or the like stretches its positions, and the number
 * mscale_all_dim that says it (0: the usual factor). */
int plait_hf_latent(const struct plait_hf_read *r,
                    const struct plait_hf_type *type);
int plait_hf_latent_write(json_t *root, const struct plait_model_config *model,
                          const struct plait_hf_type *type);
/* The factor of scores that mscale_all_dim makes of rope_factor above 1. */
double plait_hf_latent_scale(const struct plait_model_config *model,
                             double all_dim);
bool plait_hf_latent_scales(const struct plait_model_config *model,
                            double *all_dim);

/* YaRN's factor of queries and of keys where positions are stretched by
 * `factor`, of which DeepSeek takes `by` parts (mscale). */
double plait_hf_magnitude(double factor, double by);
/* The rotary positions, from all places where transformers looks for them. */
int plait_hf_rope(const struct plait_hf_read *r,
                  const struct plait_hf_type *type);
/* The keys of a model of this type; not 0: out of memory. */
int plait_hf_rope_write(json_t *root, const struct plait_model_config *model,
                        const struct plait_hf_type *type);

/* Refuse, by its name, a key that nothing here reads and that is not known to
 * leave the model as it is. */
int plait_hf_check_keys(const struct plait_hf_read *r, const char *type);

/* model.dropout and model.attention_dropout of a model of this type. The
 * former is 0 where the embedding's rate is not that of what layers add. */
int plait_hf_dropout_read(const struct plait_hf_read *r, const char *type);
/* Whether config.json has just these rates. */
bool plait_hf_dropout_is(const json_t *root,
                         const struct plait_model_config *model);
/* The rates of the model into its config.json, whose type is there, where `old`
 * (NULL: nothing was there before) says something else; what the type lacks is
 * left out. Not 0: out of memory. */
int plait_hf_dropout_write(json_t *root, const json_t *old,
                           const struct plait_model_config *model);

/* The rates of dropout above 0 that a config.json asks for, as "attn_pdrop 0.1,
 * resid_pdrop 0.1"; empty: none. */
void plait_hf_dropout(const json_t *root, char *text, size_t size);

#endif
