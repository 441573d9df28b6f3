/* SPDX-License-Identifier: Apache-2.0 */
/* What a llama4_text has beside other types' keys, and the text model inside a
 * llama4, whose models of images plait-train leaves out. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

enum {
    CHUNK = 8192,
    FLOOR = PLAIT_TEMPERATURE_FLOOR
}; /* where the keys are missing */

static const char chunk_key[] = "attention_chunk_size";

/* -- layers with experts --------------------------------------------------- */

static int read_sparse_layers(const struct plait_hf_read *r)
{
    static const struct plait_hf_count every[] = {
        {"interleave_moe_layer_step", PLAIT_HF_MODEL(experts_every), false},
        {NULL, 0, false}};
    static const struct plait_hf_count wide[] = {
        {"intermediate_size_mlp", PLAIT_HF_MODEL(dense_ffn), false},
        {NULL, 0, false}};
    const json_t *list = json_object_get(r->root, "moe_layers");

    if (list && !json_is_null(list)) {
        struct plait_layer_list layers = plait_hf_layer_list(list);

        if (!json_is_array(list) ||
            !plait_layer_list_experts(&layers, r->model))
            return plait_hf_refuse(
                r, "moe_layers", list,
                "plait-train supports experts in every Nth layer, or in all "
                "layers after the first ones");
    } else {
        if (json_object_get(r->root, every[0].name) &&
            plait_hf_counts(r, every) < 0)
            return -1;
        plait_layer_step_experts(r->model->experts_every, r->model);
    }
    return plait_model_dense_layers(r->model) ? plait_hf_counts(r, wide) : 0;
}

int plait_hf_llama4_experts(const struct plait_hf_read *r)
{
    static const struct plait_hf_count keys[] = {
        {"num_local_experts", PLAIT_HF_MODEL(experts), false},
        {"num_experts_per_tok", PLAIT_HF_MODEL(experts_top_k), false},
        {NULL, 0, false}};

    r->model->experts_scores = PLAIT_SCORES_INPUT;
    r->model->shared_experts = 1;
    return plait_hf_counts(r, keys) < 0 ? -1 : read_sparse_layers(r);
}

/* -- attention ------------------------------------------------------------- */

static int read_kind(const void *list, int i)
{
    const char *name = json_string_value(json_array_get(list, (size_t)i));

    if (name && !strcmp(name, "chunked_attention"))
        return 1;
    return name && !strcmp(name, "full_attention") ? 0 : -1;
}

/* The names of the layers' attention say again what other keys say, but that no
 * layer stays within runs. */
static int read_types(const struct plait_hf_read *r)
{
    const json_t *list = json_object_get(r->root, "layer_types");
    struct plait_layer_list kinds = plait_hf_layer_list(list);

    kinds.item = read_kind;
    if (!list || json_is_null(list) ||
        plait_layer_list_chunked(&kinds, r->model))
        return 0;
    return plait_hf_refuse(
        r, "layer_types", list,
        "plait-train supports only chunked_attention in the layers "
        "with rotary positions and full_attention in the others");
}

static int read_chunk(const struct plait_hf_read *r)
{
    static const struct plait_hf_count key[] = {
        {chunk_key, PLAIT_HF_MODEL(attention_chunk), true}, {NULL, 0, false}};

    if (!json_object_get(r->root, chunk_key))
        r->model->attention_chunk = CHUNK;
    return plait_hf_counts(r, key);
}

/* The key was a number in the first files, of which 0 is false. */
static int read_temperature(const struct plait_hf_read *r)
{
    static const char tuned[] = "attn_temperature_tuning";
    static const struct plait_hf_count floor[] = {
        {"floor_scale", PLAIT_HF_MODEL(attention_temperature_floor), false},
        {NULL, 0, false}};
    const json_t *value = json_object_get(r->root, tuned);
    struct plait_model_config *m = r->model;
    bool on = json_integer_value(value) != 0, some = false;

    if (!json_is_integer(value) && plait_hf_bool(r, tuned, true, &on) < 0)
        return -1;
    for (int i = 0; i < m->layers; i++)
        some |= !plait_model_rotated(m, i);
    if (!on || !some) /* it is of layers without rotary positions */
        return 0;
    m->attention_temperature = 0.1;
    m->attention_temperature_floor = FLOOR;
    if (json_object_get(r->root, floor[0].name) &&
        plait_hf_counts(r, floor) < 0)
        return -1;
    return json_object_get(r->root, "attn_scale")
               ? plait_hf_real(r, r->root, "attn_scale",
                               &m->attention_temperature)
               : 0;
}

int plait_hf_llama4_attention(const struct plait_hf_read *r)
{
    struct plait_model_config *m = r->model;

    if (plait_hf_bool(r, "use_qk_norm", true, &m->qk_l2_norm) < 0 ||
        read_chunk(r) < 0 || read_temperature(r) < 0)
        return -1;
    if (m->no_rope_every == 1) { /* both are of layers with them */
        m->qk_l2_norm = false;
        m->attention_chunk = 0;
    }
    return read_types(r);
}

/* -- written --------------------------------------------------------------- */

static int set_lists(json_t *root, const struct plait_model_config *m)
{
    json_t *sparse = json_array(), *types = json_array();
    int bad = 0;

    for (int i = 0; i < m->layers; i++) {
        bool chunked = m->attention_chunk && plait_model_rotated(m, i);

        if (!plait_model_dense(m, i))
            bad |= json_array_append_new(sparse, json_integer(i));
        bad |= json_array_append_new(
            types,
            json_string(chunked ? "chunked_attention" : "full_attention"));
    }
    bad |= json_object_set_new(root, "moe_layers", sparse);
    return json_object_set_new(root, "layer_types", types) | bad;
}

int plait_hf_llama4_write(json_t *root, const struct plait_model_config *m)
{
    bool tempered = m->attention_temperature > 0;
    const struct {
        const char *name;
        int value;
    } counts[] = {
        {"intermediate_size_mlp",
         plait_model_dense_layers(m) ? plait_model_dense_ffn(m) : m->ffn},
        {"interleave_moe_layer_step",
         m->experts_every > 1 ? m->experts_every : 1},
        {"floor_scale", tempered ? m->attention_temperature_floor : FLOOR}};
    int bad = set_lists(root, m);

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        bad |= json_object_set_new(root, counts[i].name,
                                   json_integer(counts[i].value));
    bad |= json_object_set_new(
        root, chunk_key,
        m->attention_chunk ? json_integer(m->attention_chunk) : json_null());
    bad |=
        json_object_set_new(root, "use_qk_norm", json_boolean(m->qk_l2_norm));
    bad |= json_object_set_new(root, "attn_temperature_tuning",
                               json_boolean(tempered));
    return json_object_set_new(
               root, "attn_scale",
               json_real(tempered ? m->attention_temperature : 0.1)) |
           bad;
}

/* -- a text model beside one of images ------------------------------------- */

static bool is_images(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));

    return type && strcmp(type, "llama4") == 0;
}

int plait_hf_check_text_part(const struct plait_hf_read *r)
{
    static const char *const both[] = {"tie_word_embeddings",
                                       "quantization_config", "vocab_size"};
    const json_t *text = json_object_get(r->root, "text_config");

    if (!is_images(r->root))
        return 0;
    if (!json_is_object(text))
        return plait_hf_refuse(r, "text_config", text,
                               "a llama4 must have it, with its text model");
    for (int i = 0; i < 3; i++) {
        const json_t *outer = json_object_get(r->root, both[i]);
        const json_t *inner = json_object_get(text, both[i]);

        if (outer && inner && !json_is_null(outer) && !json_is_null(inner) &&
            !json_equal(outer, inner))
            return plait_hf_refuse(r, both[i], outer,
                                   "text_config has another value");
    }
    return plait_hf_check_keys(r, "llama4");
}

json_t *plait_hf_text_part(json_t *root)
{
    static const char *const outer[] = {"tie_word_embeddings",
                                        "quantization_config"};
    json_t *text = json_object_get(root, "text_config");
    int bad = 0;

    if (!is_images(root) || !json_is_object(text))
        return root;
    for (int i = 0; i < 2; i++)
        if (json_object_get(root, outer[i]) && !json_object_get(text, outer[i]))
            bad |= json_object_set(text, outer[i],
                                   json_object_get(root, outer[i]));
    if (!json_object_get(text, "model_type"))
        bad |=
            json_object_set_new(text, "model_type", json_string("llama4_text"));
    text = bad ? NULL : json_incref(text);
    json_decref(root);
    return text;
}

bool plait_hf_config_images(const char *dir)
{
    char path[4200];
    json_t *root;
    bool is;

    snprintf(path, sizeof(path), "%s/config.json", dir);
    root = json_load_file(path, 0, NULL);
    is =
        is_images(root) && json_is_object(json_object_get(root, "text_config"));
    json_decref(root);
    return is;
}
