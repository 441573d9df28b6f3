/* SPDX-License-Identifier: Apache-2.0 */
/* What a config.json says of the mlp's gate and its biases, and of a Gemma
 * beside what all llama models have. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"

#include <math.h>
#include <string.h>

static const struct plait_hf_only silu_only[] = {{"hidden_act", {"\"silu\""}},
                                                 {NULL, {NULL}}};
/* Of Gemma, where "gelu" means the tanh form, too. */
static const struct plait_hf_only gemma_only[] = {
    {"hidden_act", {"\"gelu_pytorch_tanh\"", "\"gelu\""}},
    {"hidden_activation", {"\"gelu_pytorch_tanh\""}},
    {"use_bidirectional_attention", {"false"}},
    {NULL, {NULL}}};

/* A cap that is null is none. */
static int read_cap(const struct plait_hf_read *r, const char *name,
                    double missing, double *to)
{
    const json_t *value = json_object_get(r->root, name);

    *to = value ? 0 : missing;
    return !value || json_is_null(value) ? 0
                                         : plait_hf_real(r, r->root, name, to);
}

/* transformers has the key of the scores in a gemma3_text, too, and does not
 * use it. */
static int read_caps(const struct plait_hf_read *r,
                     const struct plait_hf_type *type)
{
    static const char scores[] = "attn_logit_softcapping";
    static const struct plait_hf_only none[] = {{scores, {"null"}},
                                                {NULL, {NULL}}};
    struct plait_model_config *m = r->model;

    if (type->score_cap > 0
            ? read_cap(r, scores, type->score_cap, &m->attention_softcap) < 0
            : plait_hf_check_only(r, none) < 0)
        return -1;
    return type->capped ? read_cap(r, "final_logit_softcapping",
                                   type->logit_cap, &m->logit_softcap)
                        : 0;
}

/* A gate with limits. */
static int read_clamped(const struct plait_hf_read *r)
{
    static const struct plait_hf_only only[] = {{"swiglu_limit", {"7.0", "7"}},
                                                {"swiglu_alpha", {"1.702"}},
                                                {NULL, {NULL}}};
    const json_t *codes = json_object_get(r->root, "quantization_config");
    const char *method =
        json_string_value(json_object_get(codes, "quant_method"));

    if (method && !strcmp(method, "mxfp4"))
        return plait_hf_refuse(r, "quantization_config", codes,
                               "weights in MXFP4 are not read; let "
                               "transformers write them in bf16: load with "
                               "Mxfp4Config(dequantize=True), save_pretrained");
    r->model->gate = PLAIT_GATE_CLAMPED;
    return plait_hf_check_only(r, silu_only) < 0 ? -1
                                                 : plait_hf_check_only(r, only);
}

static int read_biases(const struct plait_hf_read *r,
                       const struct plait_hf_type *type)
{
    static const struct plait_hf_only none[] = {{"mlp_bias", {"false"}},
                                                {NULL, {NULL}}};

    r->model->mlp_bias = type->sinks;
    return type->mlp_bias
               ? plait_hf_bool(r, "mlp_bias", false, &r->model->mlp_bias)
               : plait_hf_check_only(r, none);
}

int plait_hf_gate(const struct plait_hf_read *r,
                  const struct plait_hf_type *type)
{
    static const char name[] = "query_pre_attn_scalar";
    struct plait_model_config *m = r->model;
    double scalar = type->scalar;

    if (read_biases(r, type) < 0)
        return -1;
    if (type->sinks)
        return read_clamped(r);
    if (!type->gemma)
        return plait_hf_check_only(r, silu_only);
    m->gate = PLAIT_GATE_GELU;
    m->norm_plus_one = true;
    m->embedding_multiplier = sqrt(m->hidden);
    if (plait_hf_check_only(r, gemma_only) < 0 || read_caps(r, type) < 0)
        return -1;
    if (!scalar)
        return 0;
    if (json_object_get(r->root, name) &&
        plait_hf_real(r, r->root, name, &scalar) < 0)
        return -1;
    if (scalar != plait_model_head_dim(m))
        m->attention_multiplier = 1 / sqrt(scalar);
    return 0;
}
