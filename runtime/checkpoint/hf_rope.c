/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary positions of a config.json. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"

#include <stdio.h>
#include <string.h>

/* The package transformers 5 takes each of them from the first of these places
 * that has it: the object rope_scaling, or, where that is missing or empty,
 * rope_parameters; the keys beside these; the type's default. A null in the
 * object counts as being there. */
struct rope {
    const struct plait_hf_read *read;
    const json_t *object; /* NULL: neither is there */
    const char *name;     /* of it */
};

static int find_object(const struct plait_hf_read *r, struct rope *rope)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};

    *rope = (struct rope){.read = r};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(r->root, names[i]);

        if (!value || json_is_null(value))
            continue;
        if (!json_is_object(value))
            return plait_hf_refuse(r, names[i], value,
                                   "it must be an object or null");
        if (rope->object || json_object_size(value) == 0)
            continue;
        rope->object = value;
        rope->name = names[i];
    }
    return 0;
}

/* The keys of the object. Those that its rope_type does not use are no part of
 * the model, as in transformers. */
static int check_object(const struct rope *rope)
{
    static const char *const known[] = {"rope_theta",
                                        "rope_type",
                                        "type",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "attention_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "mscale",
                                        "mscale_all_dim",
                                        "truncate",
                                        "short_factor",
                                        "long_factor",
                                        "partial_rotary_factor",
                                        "finetuned",
                                        "original_max_position_embeddings"};
    const char *key;
    json_t *value;
    char name[120];

    json_object_foreach((json_t *)rope->object, key, value)
    {
        size_t i = 0, n = sizeof(known) / sizeof(known[0]);

        while (i < n && strcmp(known[i], key) != 0)
            i++;
        if (i < n || json_is_null(value))
            continue;
        snprintf(name, sizeof(name), "%s.%.60s", rope->name, key);
        return plait_hf_refuse(
            rope->read, name, value,
            json_is_object(value)
                ? "positions that differ between the layers are not trained"
                : "plait-train does not know this key of rotary positions");
    }
    return 0;
}

/* "default" where none is given. NULL: refused. */
static const char *read_type(const struct rope *rope)
{
    const json_t *type = json_object_get(rope->object, "rope_type");
    const char *name;

    if (!type)
        type = json_object_get(rope->object, "type");
    name = type ? json_string_value(type) : "default";
    if (name && (!strcmp(name, "default") || !strcmp(name, "llama3")))
        return name;
    plait_hf_refuse(rope->read, "rope_type", type,
                    "plait-train supports \"default\" and \"llama3\"");
    return NULL;
}

static int check_partial(const struct rope *rope)
{
    static const char name[] = "partial_rotary_factor";
    const json_t *value = json_object_get(rope->object, name);

    if (!value)
        value = json_object_get(rope->read->root, name);
    if (!value || json_is_null(value) ||
        (json_is_number(value) && json_number_value(value) == 1))
        return 0;
    return plait_hf_refuse(rope->read, name, value,
                           "plait-train rotates whole heads, as with 1.0");
}

/* The rope scaling of Llama 3. */
static int read_scaling(const struct rope *rope)
{
    const struct plait_hf_read *r = rope->read;
    struct plait_model_config *m = r->model;
    const json_t *in = rope->object;
    const char *name = "original_max_position_embeddings";
    double original;

    if (!json_object_get(in, name)) {
        in = r->root;
        name = "max_position_embeddings";
    }
    if (plait_hf_real(r, rope->object, "factor", &m->rope_factor) < 0 ||
        plait_hf_real(r, rope->object, "low_freq_factor",
                      &m->rope_low_freq_factor) < 0 ||
        plait_hf_real(r, rope->object, "high_freq_factor",
                      &m->rope_high_freq_factor) < 0 ||
        plait_hf_real(r, in, name, &original) < 0)
        return -1;
    if (original > PLAIT_HF_COUNT_MOST)
        return plait_hf_refuse(r, name, json_object_get(in, name),
                               "that is too long");
    m->rope_original_len = (int)original;
    return 0;
}

int plait_hf_rope(const struct plait_hf_read *r, double theta)
{
    struct rope rope;
    const char *type;

    if (find_object(r, &rope) < 0 || check_object(&rope) < 0 ||
        !(type = read_type(&rope)) || check_partial(&rope) < 0 ||
        (!strcmp(type, "llama3") && read_scaling(&rope) < 0))
        return -1;
    r->model->rope_theta = theta;
    if (json_object_get(rope.object, "rope_theta"))
        return plait_hf_real(r, rope.object, "rope_theta",
                             &r->model->rope_theta);
    if (json_object_get(r->root, "rope_theta"))
        return plait_hf_real(r, r->root, "rope_theta", &r->model->rope_theta);
    return 0; /* older than the key */
}
