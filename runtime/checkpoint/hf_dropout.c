/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of dropout of a config.json, and model.dropout and
 * model.attention_dropout: transformers has a rate each for the embedding's
 * output and for what a layer's halves add, plait-train one for both. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"

#include <stdio.h>
#include <string.h>

#define RATE_MOST 0.999 /* that of the keys of plait.yaml */

/* Which keys they are, NULL: this type has none, and the rate where a key is
 * missing. The model of a phi3 does not read its embd_pdrop. */
struct rates {
    const char *attention, *embedding, *residual;
    double missing;
};

static struct rates rates_of(const char *type)
{
    if (strcmp(type, "gpt2") == 0)
        return (struct rates){"attn_pdrop", "embd_pdrop", "resid_pdrop", 0.1};
    if (strcmp(type, "phi3") == 0)
        return (struct rates){"attention_dropout", NULL, "resid_pdrop", 0};
    if (strcmp(type, "seed_oss") == 0)
        return (struct rates){"attention_dropout", NULL, "residual_dropout",
                              0.1};
    return (struct rates){"attention_dropout", NULL, "hidden_dropout", 0};
}

static int read_rate(const struct plait_hf_read *r, const char *name,
                     double missing, double *to)
{
    const json_t *value = name ? json_object_get(r->root, name) : NULL;

    *to = value || !name ? 0 : missing;
    if (!value || json_is_null(value))
        return 0;
    *to = json_number_value(value);
    if (!json_is_number(value) || !(*to >= 0 && *to <= RATE_MOST))
        return plait_hf_refuse(r, name, value,
                               "it must be a number from 0 to 0.999");
    return 0;
}

/* What a config.json says. */
struct said {
    double attention, embedding, residual;
};

static int read_rates(const struct plait_hf_read *r, const char *type,
                      struct said *said)
{
    struct rates keys = rates_of(type);

    return read_rate(r, keys.attention, keys.missing, &said->attention) < 0 ||
                   read_rate(r, keys.embedding, keys.missing,
                             &said->embedding) < 0 ||
                   read_rate(r, keys.residual, keys.missing, &said->residual) <
                       0
               ? -1
               : 0;
}

int plait_hf_dropout_read(const struct plait_hf_read *r, const char *type)
{
    struct said said;

    if (read_rates(r, type, &said) < 0)
        return -1;
    r->model->attention_dropout = said.attention;
    r->model->dropout = said.embedding == said.residual ? said.residual : 0;
    return 0;
}

bool plait_hf_dropout_is(const json_t *root, const struct plait_model_config *m)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    struct plait_error why;
    const struct plait_hf_read r = {.root = root, .err = &why};
    struct said said;

    return read_rates(&r, type ? type : "", &said) == 0 &&
           said.attention == m->attention_dropout &&
           said.embedding == m->dropout && said.residual == m->dropout;
}

int plait_hf_dropout_write(json_t *root, const json_t *old,
                           const struct plait_model_config *m)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    struct rates keys = rates_of(type);
    struct plait_model_config there = {.layers = 0};
    struct plait_error why;
    json_t *none = json_object();
    const struct plait_hf_read r = {
        .root = old ? old : none, .model = &there, .err = &why};
    int bad = !none || plait_hf_dropout_read(&r, type) < 0;

    json_decref(none);
    if (!bad && there.attention_dropout != m->attention_dropout)
        bad = json_object_set_new(root, keys.attention,
                                  json_real(m->attention_dropout));
    if (bad || !keys.embedding || there.dropout == m->dropout)
        return bad;
    return json_object_set_new(root, keys.embedding, json_real(m->dropout)) |
           json_object_set_new(root, keys.residual, json_real(m->dropout));
}

/* Append "NAME RATE" to a list; a rate of 0 is none. */
static void add_rate(char *text, size_t size, const char *name, double rate)
{
    size_t n = strlen(text);

    if (rate > 0 && n + strlen(name) + 16 < size)
        snprintf(text + n, size - n, "%s%s %g", n ? ", " : "", name, rate);
}

void plait_hf_dropout(const json_t *root, char *text, size_t size)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    struct rates keys = rates_of(type ? type : "");
    const char *const names[] = {keys.attention, keys.embedding, keys.residual};

    *text = '\0';
    for (int i = 0; i < 3; i++) {
        const json_t *value = names[i] ? json_object_get(root, names[i]) : NULL;

        if (json_is_number(value))
            add_rate(text, size, names[i], json_number_value(value));
        else if (names[i] && !value) /* the default of the type */
            add_rate(text, size, names[i], keys.missing);
    }
}
