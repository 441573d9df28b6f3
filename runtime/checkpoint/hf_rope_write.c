/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary positions of a config.json, written. */
#include "config.h"

#include "runtime/checkpoint/hf_longrope.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

#include <math.h>

static json_t *yarn_json(const struct plait_model_config *m)
{
    return json_pack(
        "{s:s,s:f,s:f,s:f,s:i,s:b,s:f}", "rope_type", "yarn", "factor",
        m->rope_factor, "beta_slow", m->rope_low_freq_factor, "beta_fast",
        m->rope_high_freq_factor, "original_max_position_embeddings",
        m->rope_original_len, "truncate", m->rope_truncate, "attention_factor",
        plait_model_rope_size(m));
}

/* The factor of Llama 3's scaling, or what read_linear() made of another. */
static json_t *scaling_json(const struct plait_model_config *m)
{
    if (!(m->rope_factor > 1))
        return json_pack("{s:s}", "rope_type", "default");
    if (m->rope_scaling == PLAIT_ROPE_YARN)
        return yarn_json(m);
    if (m->rope_original_len == 1 && m->rope_low_freq_factor >= 1)
        return json_pack("{s:s,s:f}", "rope_type", "linear", "factor",
                         m->rope_factor);
    return json_pack("{s:s,s:f,s:f,s:f,s:i}", "rope_type", "llama3", "factor",
                     m->rope_factor, "low_freq_factor", m->rope_low_freq_factor,
                     "high_freq_factor", m->rope_high_freq_factor,
                     "original_max_position_embeddings", m->rope_original_len);
}

/* Positions of each kind of layers, as transformers 5 has them. */
static int set_rope_kinds(json_t *root, const struct plait_model_config *m,
                          double window)
{
    json_t *full = m->rope_factor > 1
                       ? scaling_json(m)
                       : json_pack("{s:s}", "rope_type", "default");
    int bad = json_object_set_new(full, "rope_theta", json_real(m->rope_theta));

    json_object_del(root, "rope_theta");
    return json_object_set_new(root, "rope_parameters",
                               json_pack("{s:o,s:{s:s,s:f}}", "full_attention",
                                         full, "sliding_attention", "rope_type",
                                         "default", "rope_theta", window)) |
           bad;
}

/* The share of a head's columns, of which transformers makes their number again
 * and rounds down: 30 of 88 would be 29. */
static double partial_factor(const struct plait_model_config *m)
{
    int columns = plait_model_rope_columns(m), all = plait_model_head_dim(m);
    double factor = (double)columns / all;

    return (int)(factor * all) < columns ? nextafter(factor, 2) : factor;
}

/* The mscale that makes this size of queries and keys: of few digits if that
 * makes it too. */
static double find_mscale(double factor, double size)
{
    double by = (size - 1) / (0.1 * log(factor)), few = round(by * 1e9) / 1e9;

    return fabs(plait_hf_magnitude(factor, few) - size) < 1e-15 ? few : by;
}

/* transformers reads attention_factor; DeepSeek's own code and vLLM read mscale
 * instead, which is 1 where it is missing: with mscale_all_dim both say the
 * same. `type` is the older name of rope_type. */
static json_t *latent_json(const struct plait_model_config *m)
{
    json_t *scaling = scaling_json(m);
    bool yarn = m->rope_scaling == PLAIT_ROPE_YARN;
    double all, size;
    int bad = 0;

    if (!plait_hf_latent_scales(m, &all))
        return scaling;
    size = plait_model_rope_size(m) * plait_hf_magnitude(m->rope_factor, all);
    if (all > 0)
        bad = json_object_set_new(scaling, "mscale_all_dim", json_real(all));
    if (yarn)
        bad |=
            json_object_set_new(scaling, "type", json_string("yarn")) |
            json_object_set_new(scaling, "mscale",
                                json_real(find_mscale(m->rope_factor, size)));
    if (!bad)
        return scaling;
    json_decref(scaling);
    return NULL;
}

int plait_hf_rope_write(json_t *root, const struct plait_model_config *m,
                        const struct plait_hf_type *type)
{
    double window =
        m->rope_theta_window > 0 ? m->rope_theta_window : m->rope_theta;
    int bad = 0;

    if (type->theta_window > 0 && !type->gemma)
        return set_rope_kinds(root, m, window);
    if (type->theta_window >
        0) /* a gemma3_text: keys that transformers 4 has, too */
        bad = json_object_set_new(root, "rope_local_base_freq",
                                  json_real(window));
    if (type->partial && (type->glm || plait_model_partly_rotated(m)))
        bad |= json_object_set_new(root, "partial_rotary_factor",
                                   json_real(partial_factor(m)));
    if (type->sigmoid) /* once more, for others than transformers */
        bad |= json_object_set_new(root, "rotary_dim",
                                   json_integer(plait_model_rope_columns(m)));
    if (!(m->rope_factor > 1) && !type->sinks)
        return bad;
    if (m->rope_scaling == PLAIT_ROPE_LONGROPE)
        return plait_hf_longrope_write(root, m, type) | bad;
    return json_object_set_new(root, "rope_scaling",
                               type->latent ? latent_json(m)
                                            : scaling_json(m)) |
           bad;
}
