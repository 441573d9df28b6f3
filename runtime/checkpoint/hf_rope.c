/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary positions of a config.json, read. */
#include "config.h"

#include "runtime/checkpoint/hf_longrope.h"
#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/model_size.h"

#include <math.h>
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

/* "default" where none is given; that of a phi3 has had other names, and it
 * has no other. NULL: refused. */
static const char *read_type(const struct rope *rope, bool phi3)
{
    const json_t *type = json_object_get(rope->object, "rope_type");
    const char *name;

    if (!type)
        type = json_object_get(rope->object, "type");
    name = type ? json_string_value(type) : "default";
    if (name && phi3 && (!strcmp(name, "su") || !strcmp(name, "yarn")))
        return "longrope";
    if (name && (!strcmp(name, "default") || !strcmp(name, "longrope")))
        return name;
    if (name && !phi3 &&
        (!strcmp(name, "llama3") || !strcmp(name, "linear") ||
         !strcmp(name, "yarn")))
        return name;
    plait_hf_refuse(rope->read, "rope_type", type,
                    phi3 ? "a phi3 has \"default\" or \"longrope\""
                         : "plait-train supports \"default\", \"linear\", "
                           "\"llama3\", \"yarn\" and \"longrope\"");
    return NULL;
}

/* The first columns of a head, as many as transformers rotates, which rounds
 * down. */
static int read_partial(const struct rope *rope, const json_t *value)
{
    struct plait_model_config *m = rope->read->model;
    double factor = json_is_number(value) ? json_number_value(value) : 0;
    int columns = (int)(factor * plait_model_head_dim(m));

    if (!(factor > 0) || factor > 1 || columns < 2 || columns % 2)
        return plait_hf_refuse(rope->read, "partial_rotary_factor", value,
                               "it must give an even number of columns, from "
                               "2 to head_dim");
    m->rope_columns = columns;
    return 0;
}

/* The same number by itself, of a MiniMax-M2, which counts where there is no
 * factor. */
static int check_columns(const struct rope *rope, const json_t *factor)
{
    static const char name[] = "rotary_dim";
    struct plait_model_config *m = rope->read->model;
    const json_t *value = json_object_get(rope->read->root, name);
    json_int_t n = json_integer_value(value), all = plait_model_head_dim(m);

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || n < 2 || n > all || n % 2)
        return plait_hf_refuse(rope->read, name, value,
                               "it must be an even number from 2 to head_dim");
    if (!factor)
        m->rope_columns = n < all ? (int)n : 0;
    if (n != plait_model_rope_columns(m))
        return plait_hf_refuse(rope->read, name, value,
                               "partial_rotary_factor says another number");
    return 0;
}

static int check_partial(const struct rope *rope,
                         const struct plait_hf_type *type)
{
    static const char name[] = "partial_rotary_factor";
    const json_t *value = json_object_get(rope->object, name);

    if (!value)
        value = json_object_get(rope->read->root, name);
    if (!value && type->glm && !type->latent)
        rope->read->model->rope_columns =
            plait_model_head_dim(rope->read->model) / 2;
    if (value && !json_is_null(value) &&
        !(json_is_number(value) && json_number_value(value) == 1)) {
        if (!type->partial)
            return plait_hf_refuse(rope->read, name, value,
                                   "plait-train rotates whole heads, as with "
                                   "1.0");
        if (read_partial(rope, value) < 0)
            return -1;
    }
    return type->sigmoid ? check_columns(rope, value) : 0;
}

/* All positions are slower by one factor: the scaling of Llama 3 for texts so
 * short that nothing in them turns often enough to be left as it is. */
static int read_linear(const struct rope *rope)
{
    struct plait_model_config *m = rope->read->model;

    m->rope_low_freq_factor = 1;
    m->rope_high_freq_factor = 4;
    m->rope_original_len = 1;
    return plait_hf_real(rope->read, rope->object, "factor", &m->rope_factor);
}

/* The factor, and the length of texts before it. */
static int read_original(const struct rope *rope)
{
    const struct plait_hf_read *r = rope->read;
    const json_t *in = rope->object;
    const char *name = "original_max_position_embeddings";
    double original;

    if (!json_object_get(in, name)) {
        in = r->root;
        name = "max_position_embeddings";
    }
    if (plait_hf_real(r, rope->object, "factor", &r->model->rope_factor) < 0 ||
        plait_hf_real(r, in, name, &original) < 0)
        return -1;
    if (original > PLAIT_HF_COUNT_MOST)
        return plait_hf_refuse(r, name, json_object_get(in, name),
                               "that is too long");
    r->model->rope_original_len = (int)original;
    return 0;
}

/* The rope scaling of Llama 3. */
static int read_scaling(const struct rope *rope)
{
    const struct plait_hf_read *r = rope->read;
    struct plait_model_config *m = r->model;

    return plait_hf_real(r, rope->object, "low_freq_factor",
                         &m->rope_low_freq_factor) < 0 ||
                   plait_hf_real(r, rope->object, "high_freq_factor",
                                 &m->rope_high_freq_factor) < 0
               ? -1
               : read_original(rope);
}

/* A number of YaRN's, `missing` where transformers takes its own: where it is
 * missing, null or 0. */
static int read_own(const struct rope *rope, const char *name, double missing,
                    double *to)
{
    const json_t *value = json_object_get(rope->object, name);

    *to = missing;
    return !value || json_is_null(value) ||
                   (json_is_number(value) && json_number_value(value) == 0)
               ? 0
               : plait_hf_real(rope->read, rope->object, name, to);
}

double plait_hf_magnitude(double factor, double by)
{
    return factor > 1 ? 0.1 * by * log(factor) + 1 : 1;
}

/* What multiplies queries and keys, if that is not what the factor alone says:
 * a number, or the ratio of two magnitudes (DeepSeek). */
static int read_attention_factor(const struct rope *rope)
{
    struct plait_model_config *m = rope->read->model;
    double usual = plait_hf_magnitude(m->rope_factor, 1), above, below,
           size = usual;
    const json_t *given = json_object_get(rope->object, "attention_factor");

    if (given && !json_is_null(given)) {
        if (plait_hf_real(rope->read, rope->object, "attention_factor", &size) <
            0)
            return -1;
    } else if (read_own(rope, "mscale", 0, &above) < 0 ||
               read_own(rope, "mscale_all_dim", 0, &below) < 0) {
        return -1;
    } else if (above > 0 && below > 0) {
        size = plait_hf_magnitude(m->rope_factor, above) /
               plait_hf_magnitude(m->rope_factor, below);
    }
    if (m->rope_factor <= 1 && size != 1)
        return plait_hf_refuse(rope->read, "attention_factor", given,
                               "with a factor of 1 it must be 1");
    m->rope_attention_factor = fabs(size - usual) < 1e-12 ? 0 : size;
    return 0;
}

/* Peng et al., "YaRN", 2023. transformers ignores "truncate" inside
 * full_attention and sliding_attention and always rounds there. */
static int read_yarn(const struct rope *rope)
{
    struct plait_model_config *m = rope->read->model;
    const json_t *whole = json_object_get(rope->object, "truncate");
    bool kind = strcmp(rope->name, "rope_scaling") != 0 &&
                strcmp(rope->name, "rope_parameters") != 0;

    if (whole && (!json_is_boolean(whole) || (kind && json_is_false(whole))))
        return plait_hf_refuse(rope->read, "truncate", whole,
                               kind ? "it must be true"
                                    : "it must be true or "
                                      "false");
    m->rope_scaling = PLAIT_ROPE_YARN;
    m->rope_truncate = !whole || json_is_true(whole);
    return read_own(rope, "beta_slow", 1, &m->rope_low_freq_factor) < 0 ||
                   read_own(rope, "beta_fast", 32, &m->rope_high_freq_factor) <
                       0 ||
                   read_original(rope) < 0
               ? -1
               : read_attention_factor(rope);
}

/* No YaRN. */
static void set_llama3(struct plait_model_config *m)
{
    m->rope_scaling = PLAIT_ROPE_LLAMA3;
    m->rope_truncate = false;
    m->rope_attention_factor = 0;
}

/* DeepSeek's factor of the scores, which makes up for positions that are
 * stretched: in all types of scaling. */
static int read_scale(const struct rope *rope)
{
    struct plait_model_config *m = rope->read->model;
    double all;

    if (read_own(rope, "mscale_all_dim", 0, &all) < 0)
        return -1;
    if (all > 0 && m->rope_factor > 1)
        m->attention_multiplier = plait_hf_latent_scale(m, all);
    return 0;
}

/* What stretches the positions. A factor below 1, which would press them
 * together, would otherwise count as none. With a factor of 1 nothing is left
 * of the scaling: keys of YaRN's would be refused, and those of layers with
 * windows would be taken for the others'. */
static int read_factors(const struct rope *rope, const char *kind,
                        const struct plait_hf_type *type)
{
    struct plait_model_config *m = rope->read->model;

    if (!strcmp(kind, "default"))
        return 0;
    if (!strcmp(kind, "longrope") && type->latent)
        return plait_hf_refuse(rope->read, "rope_type",
                               json_object_get(rope->object, "rope_type"),
                               "plait-train does not read it of models with "
                               "latent attention");
    if (!strcmp(kind, "longrope"))
        return plait_hf_longrope(rope->read, rope->object, type);
    if (!strcmp(kind, "linear") ? read_linear(rope) < 0
        : !strcmp(kind, "yarn") ? read_yarn(rope) < 0
                                : read_scaling(rope) < 0)
        return -1;
    if (m->mla_kv && read_scale(rope) < 0)
        return -1;
    if (m->rope_factor == 1)
        set_llama3(m);
    if (m->rope_factor >= 1)
        return 0;
    return plait_hf_refuse(rope->read, "factor",
                           json_object_get(rope->object, "factor"),
                           "it must be at least 1");
}

/* One kind of layers. `beside`: the key that theta has beside the objects;
 * NULL: none. */
static int read_one(const struct rope *rope, const struct plait_hf_type *type,
                    double theta, const char *beside)
{
    const struct plait_hf_read *r = rope->read;
    const char *kind;

    if (check_object(rope) < 0 || !(kind = read_type(rope, type->fused)) ||
        check_partial(rope, type) < 0 || read_factors(rope, kind, type) < 0)
        return -1;
    r->model->rope_theta = theta;
    if (json_object_get(rope->object, "rope_theta"))
        return plait_hf_real(r, rope->object, "rope_theta",
                             &r->model->rope_theta);
    if (beside && json_object_get(r->root, beside))
        return plait_hf_real(r, r->root, beside, &r->model->rope_theta);
    return 0; /* older than the key */
}

/* -- positions that differ between the layers ----------------------------- */

/* The object of a kind of layers, of rope_parameters, or what it is made of. */
static int find_kind(const struct plait_hf_read *r, const char *kind,
                     struct rope *rope)
{
    const json_t *both = json_object_get(r->root, "rope_parameters");
    const json_t *old = json_object_get(r->root, "rope_scaling");
    const json_t *one = json_object_get(both, kind);
    bool full = strcmp(kind, "full_attention") == 0;

    *rope = (struct rope){.read = r, .name = kind};
    if (both && !json_is_null(both) &&
        !json_object_get(both, "full_attention") &&
        !json_object_get(both, "sliding_attention"))
        return plait_hf_refuse(r, "rope_parameters", both,
                               "it must have an object full_attention and one "
                               "sliding_attention");
    if (one && !json_is_null(one) && !json_is_object(one))
        return plait_hf_refuse(r, kind, one, "it must be an object");
    if (json_is_object(one))
        rope->object = one;
    if (full && old && !json_is_null(old) && rope->object)
        return plait_hf_refuse(r, "rope_scaling", old,
                               "rope_parameters is there, too; remove one");
    if (full && json_is_object(old))
        rope->object = old;
    return 0;
}

/* Of an olmo3's layers with windows: transformers 4 takes rope_theta beside the
 * objects for them, transformers 5 does not. */
static int check_same(const struct plait_hf_read *r,
                      const struct plait_hf_type *type,
                      const struct rope *windows)
{
    const json_t *theta = json_object_get(r->root, "rope_theta");

    if (type->gemma || !r->model->sliding_window || windows->object || !theta ||
        json_number_value(theta) == type->theta_window)
        return 0;
    return plait_hf_refuse(r, "rope_theta", theta,
                           "versions of transformers differ in whether it is "
                           "that of sliding_attention too: write a rope_theta "
                           "for it and for full_attention in rope_parameters");
}

/* Layers with windows, which have no scaling, then the others. */
static int read_kinds(const struct plait_hf_read *r,
                      const struct plait_hf_type *type)
{
    struct plait_model_config *m = r->model;
    struct rope rope;
    double window, factor = m->rope_factor;

    if (find_kind(r, "sliding_attention", &rope) < 0 ||
        check_same(r, type, &rope) < 0 ||
        read_one(&rope, type, type->theta_window, "rope_local_base_freq") < 0)
        return -1;
    if (m->rope_factor > 1)
        return plait_hf_refuse(r, "sliding_attention", rope.object,
                               "plait-train stretches the positions of full "
                               "attention alone");
    window = m->rope_theta;
    m->rope_factor = factor;
    if (find_kind(r, "full_attention", &rope) < 0 ||
        read_one(&rope, type, type->theta, "rope_theta") < 0)
        return -1;
    if (m->sliding_window && (window != m->rope_theta || m->rope_factor > 1))
        m->rope_theta_window = window;
    return 0;
}

static bool is_given(const struct plait_hf_read *r, const char *name)
{
    const json_t *value = json_object_get(r->root, name);

    return value && !json_is_null(value);
}

/* What a gpt_oss has where neither object is there. rope_parameters that are
 * empty are there: they say that nothing is stretched. */
static void set_oss(struct plait_model_config *m)
{
    m->rope_scaling = PLAIT_ROPE_YARN;
    m->rope_factor = 32;
    m->rope_low_freq_factor = 1;
    m->rope_high_freq_factor = 32;
    m->rope_original_len = 4096;
}

int plait_hf_rope(const struct plait_hf_read *r,
                  const struct plait_hf_type *type)
{
    struct rope rope;

    if (type->theta_window > 0)
        return read_kinds(r, type);
    if (find_object(r, &rope) < 0)
        return -1;
    if (type->sinks && !rope.object && !is_given(r, "rope_parameters"))
        set_oss(r->model);
    return read_one(&rope, type, type->theta, "rope_theta");
}
