/* SPDX-License-Identifier: Apache-2.0 */
/* LongRoPE (arXiv 2402.13753) of a config.json: a divisor for each pair of
 * columns, one list for texts of the original length and one for longer ones.
 * What transformers has inside the object or beside it is read from both. */
#include "config.h"

#include "runtime/checkpoint/hf_longrope.h"
#include "topology/job/model_size.h"

#include <math.h>

static int read_list(const struct plait_hf_read *r, const json_t *object,
                     const char *name, struct plait_reals *to)
{
    const json_t *list = json_object_get(object, name), *number;
    int pairs = plait_model_rope_columns(r->model) / 2;
    struct plait_reals read = {.n = pairs};
    size_t i;

    if (!json_is_array(list) || (int)json_array_size(list) != pairs ||
        pairs > PLAIT_REALS_MOST)
        return plait_hf_refuse(r, name, list,
                               "it must be a list of a number for each pair "
                               "of a head's columns with rotary positions");
    json_array_foreach(list, i, number)
    {
        read.at[i] = json_is_number(number) ? json_number_value(number) : 0;
        if (!(read.at[i] >= 1e-3 && read.at[i] <= 1e6))
            return plait_hf_refuse(r, name, number,
                                   "its numbers must be from 0.001 to 1e6");
    }
    *to = read;
    return 0;
}

/* The length before the extension: beside the object, in it, or the type's. */
static int read_length(const struct plait_hf_read *r, const json_t *object,
                       const struct plait_hf_type *type)
{
    static const char name[] = "original_max_position_embeddings";
    const json_t *in = r->root;
    double length = 4096;

    if (json_is_null(json_object_get(in, name)) || !json_object_get(in, name))
        in = json_object_get(object, name) ? object : NULL;
    if (!in && !type->fused)
        return plait_hf_refuse(r, name, NULL, "longrope needs it");
    if (in && plait_hf_real(r, in, name, &length) < 0)
        return -1;
    if (length < 2 || length > PLAIT_HF_COUNT_MOST)
        return plait_hf_refuse(r, name, in ? json_object_get(in, name) : NULL,
                               "it must be a number of tokens from 2");
    r->model->rope_original_len = (int)length;
    return 0;
}

static int read_factor(const struct plait_hf_read *r, const json_t *object)
{
    struct plait_model_config *m = r->model;
    const json_t *factor = json_object_get(object, "factor");
    double longest;

    if (factor && !json_is_null(factor)) {
        if (plait_hf_real(r, object, "factor", &m->rope_factor) < 0)
            return -1;
    } else {
        if (plait_hf_real(r, r->root, "max_position_embeddings", &longest) < 0)
            return -1;
        m->rope_factor = longest / m->rope_original_len;
    }
    if (m->rope_factor > 1)
        return 0;
    return plait_hf_refuse(r, "factor", factor,
                           "it, or max_position_embeddings over "
                           "original_max_position_embeddings, must be above 1");
}

int plait_hf_longrope(const struct plait_hf_read *r, const json_t *object,
                      const struct plait_hf_type *type)
{
    struct plait_model_config *m = r->model;
    const json_t *size = json_object_get(object, "attention_factor");

    if (type->theta_window > 0)
        return plait_hf_refuse(r, "rope_type",
                               json_object_get(object, "rope_type"),
                               "plait-train has it in models whose layers all "
                               "have the same positions");
    m->rope_scaling = PLAIT_ROPE_LONGROPE;
    m->rope_truncate = false;
    m->rope_attention_factor = 0;
    if (read_length(r, object, type) < 0 || read_factor(r, object) < 0 ||
        read_list(r, object, "short_factor", &m->rope_short) < 0 ||
        read_list(r, object, "long_factor", &m->rope_long) < 0)
        return -1;
    return size && !json_is_null(size)
               ? plait_hf_real(r, object, "attention_factor",
                               &m->rope_attention_factor)
               : 0;
}

static json_t *list_json(const struct plait_reals *list)
{
    json_t *array = json_array();

    for (int i = 0; i < list->n; i++)
        json_array_append_new(array, json_real(list->at[i]));
    return array;
}

/* transformers 4 takes the object of a phi3 with these three keys alone, and
 * the factor from the two lengths. */
int plait_hf_longrope_write(json_t *root, const struct plait_model_config *m,
                            const struct plait_hf_type *type)
{
    double longest = m->rope_factor * m->rope_original_len;
    json_t *object = json_pack("{s:s,s:o,s:o}", "type", "longrope",
                               "short_factor", list_json(&m->rope_short),
                               "long_factor", list_json(&m->rope_long));
    int bad = json_object_set_new(type->fused ? root : object,
                                  "original_max_position_embeddings",
                                  json_integer(m->rope_original_len));

    if (type->fused && longest == floor(longest))
        bad |= json_object_set_new(root, "max_position_embeddings",
                                   json_integer((json_int_t)longest));
    else
        bad |= json_object_set_new(object, "factor", json_real(m->rope_factor));
    if (m->rope_attention_factor > 0)
        bad |= json_object_set_new(object, "attention_factor",
                                   json_real(m->rope_attention_factor));
    return json_object_set_new(root, "rope_scaling", object) | bad;
}
