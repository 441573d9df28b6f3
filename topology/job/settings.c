/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hash.h"
#include "topology/base/parts.h"
#include "topology/base/yaml.h"
#include "topology/job/model_size.h"

/* Sections of which every key counts. */
static const char *const whole[] = {"model", "optim", "lr", "batch", "sync"};
/* The keys that count in other sections. train.micro_batch is one because batch
 * norms take their statistics of a micro-batch; nothing else depends on it.
 * data.end_token only says where masked documents end. train.steps is one where
 * the learning rate of each step follows from where the run ends. */
static const char *const single[] = {
    "data.mean",           "data.std",
    "data.shift",          "data.flip",
    "data.end_token",      "data.mask_documents",
    "train.global_batch",  "train.precision",
    "train.seed",          "train.noise",
    "train.skip_outliers", "train.micro_batch",
    "train.steps"};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(text, list[i]))
            return true;
    return false;
}

static bool is_listed(const char *section, const char *key)
{
    return is_one_of(section, whole, COUNT(whole)) ||
           is_one_of(key, single, COUNT(single));
}

bool plait_settings_counts_steps(const struct plait_job_config *c)
{
    return c->lr.schedule == PLAIT_LR_COSINE ||
           c->lr.schedule == PLAIT_LR_LINEAR || c->lr.schedule == PLAIT_LR_WSD;
}

static bool counts(const struct plait_job_config *c, const char *key)
{
    if (!strcmp(key, "data.end_token"))
        return c->data.mask_documents;
    if (!strcmp(key, "train.steps"))
        return plait_settings_counts_steps(c);
    if (strcmp(key, "train.micro_batch") != 0)
        return true;
    return c->model.family == PLAIT_RESNET && c->model.norm != PLAIT_NORM_GHOST;
}

/* What does not fit is cut, and ends with a hash of the whole. */
static void copy_value(struct plait_setting *setting, const char *text)
{
    const size_t room = sizeof(setting->value), digits = 16;

    snprintf(setting->value, room, "%s", text);
    if (strlen(text) >= room)
        snprintf(setting->value + room - digits - 1, digits + 1, "%016" PRIx64,
                 plait_hash_text(PLAIT_HASH_START, text));
}

static int print_value(const struct plait_yaml_field *field, const void *value,
                       struct plait_setting *setting)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return -1;
    plait_yaml_print_value(out, field, value);
    if (fclose(out) != 0) {
        free(text);
        return -1;
    }
    copy_value(setting, text);
    free(text);
    return 0;
}

static int add_section(const struct plait_job_config *c,
                       const struct plait_yaml_field *section,
                       struct plait_settings *s)
{
    for (int i = 0; i < section->count; i++) {
        const struct plait_yaml_field *field = &section->fields[i];
        struct plait_setting *setting = &s->at[s->n];

        snprintf(setting->key, sizeof(setting->key), "%s.%s", section->name,
                 field->name);
        if (!is_listed(section->name, setting->key) ||
            !counts(c, setting->key) || s->n == PLAIT_SETTINGS_MOST - 1)
            continue;
        if (print_value(field,
                        (const char *)c + section->offset + field->offset,
                        setting) < 0)
            return -1;
        s->n++;
    }
    return 0;
}

int plait_settings_list(const struct plait_job_config *config,
                        struct plait_settings *settings)
{
    struct plait_job_config c = *config; /* its texts are only read */
    const struct plait_yaml_field *sections;
    int n;

    plait_model_fill_in(&c.model); /* 0 means the same as its default */
    settings->n = 0;
    sections = plait_job_config_sections(&n);
    for (int i = 0; i < n; i++)
        if (add_section(&c, &sections[i], settings) < 0)
            return -1;
    return 0;
}

/* In one line, whatever is in it. */
static void print_text(FILE *out, const char *text)
{
    for (; text && *text; text++)
        fputc(*text == '\n' ? ' ' : *text, out);
}

static void print_parts(FILE *out, const struct plait_parts *parts)
{
    for (int i = 0; i < parts->n; i++) {
        const struct plait_part *part = &parts->at[i];

        fputs(i > 0 ? ", " : "", out);
        print_text(out, part->name);
        fputs(part->name ? ": " : "", out);
        print_text(out, part->path);
        if (parts->n > 1)
            fprintf(out, " (%.17g)", part->weight);
    }
}

static void print_any(FILE *out, const struct plait_yaml_field *field,
                      const void *value)
{
    if (field->type == PLAIT_YAML_TEXT)
        print_text(out, *(char *const *)value);
    else if (field->type == PLAIT_YAML_WEIGHTS ||
             field->type == PLAIT_YAML_NAMED)
        print_parts(out, value);
    else
        plait_yaml_print_value(out, field, value);
}

/* Paths that are not set, and a vocabulary in whose place another may come. */
static bool is_open(const struct plait_job_config *config, const void *value)
{
    return (value == &config->model.vocab && !config->vocab_given) ||
           (value == &config->data.train && config->data.train.n == 0) ||
           (value == &config->data.val && config->data.val.n == 0);
}

void plait_settings_print_all(const struct plait_job_config *config, FILE *out)
{
    const struct plait_yaml_field *sections, *field;
    const void *value;
    int n;

    sections = plait_job_config_sections(&n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < sections[i].count; k++) {
            field = &sections[i].fields[k];
            if (field->own)
                continue;
            fprintf(out, "%s.%s=", sections[i].name, field->name);
            value = (const char *)config + sections[i].offset + field->offset;
            if (is_open(config, value))
                fputs("not given", out);
            else
                print_any(out, field, value);
            fputc('\n', out);
        }
}

bool plait_settings_shapes(const char *key)
{
    static const char *const shapes[] = {
        "model.family",       "model.layers",         "model.hidden",
        "model.heads",        "model.kv_heads",       "model.head_dim",
        "model.ffn",          "model.vocab",          "model.tie_embeddings",
        "model.mla",          "model.qk_norm",        "model.attention_bias",
        "model.experts",      "model.depth",          "model.shared_experts",
        "model.dense_layers", "model.width",          "model.dense_ffn",
        "model.classes",      "model.input",          "model.qk_norm_whole",
        "model.norm_place",   "model.norm_plus_one",  "model.attention_sinks",
        "model.mlp_bias",     "model.experts_scores", "model.experts_every",
        "model.mtp_layers"};

    return is_one_of(key, shapes, COUNT(shapes));
}

bool plait_settings_has_key(const char *key)
{
    const struct plait_yaml_field *sections;
    char name[96];
    int n;

    sections = plait_job_config_sections(&n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < sections[i].count; k++) {
            snprintf(name, sizeof(name), "%s.%s", sections[i].name,
                     sections[i].fields[k].name);
            if (!strcmp(key, name))
                return is_listed(sections[i].name, name);
        }
    return false;
}

/* Whether its default follows from other keys or it counts at times only. */
static bool depends(const char *key)
{
    static const char *const keys[] = {
        "model.kv_heads",       "model.ffn",
        "model.tie_embeddings", "model.seq_len",
        "model.vocab",          "model.layers",
        "model.width",          "model.rope_high_freq_factor",
        "model.rope_truncate",  "data.end_token",
        "train.steps",          "train.micro_batch",
    };

    return is_one_of(key, keys, COUNT(keys));
}

/* The field of "section.key", and the section; NULL: there is none. */
static const struct plait_yaml_field *
find_field(const char *key, const struct plait_yaml_field **section)
{
    int n;

    *section = plait_job_config_sections(&n);
    for (const struct plait_yaml_field *end = *section + n; *section < end;
         ++*section) {
        size_t length = strlen((*section)->name);

        if (strncmp(key, (*section)->name, length) != 0 || key[length] != '.')
            continue;
        for (int k = 0; k < (*section)->count; k++)
            if (!strcmp(key + length + 1, (*section)->fields[k].name))
                return &(*section)->fields[k];
    }
    return NULL;
}

int plait_settings_default(const struct plait_job_config *config,
                           const char *key, struct plait_setting *setting)
{
    struct plait_job_config c = *config; /* its texts are only read */
    const struct plait_yaml_field *section, *field = find_field(key, &section);
    char *value;

    if (!field || depends(key))
        return 0;
    value = (char *)&c + section->offset;
    plait_yaml_defaults(field, 1, value);
    value += field->offset;
    if (field->type == PLAIT_YAML_NUMBERS || field->type == PLAIT_YAML_RUNS ||
        field->type == PLAIT_YAML_PAIRS)
        *(struct plait_numbers *)value = (struct plait_numbers){.n = 0};
    if (field->type == PLAIT_YAML_SERIES)
        *(struct plait_reals *)value = (struct plait_reals){.n = 0};
    plait_model_fill_in(&c.model);
    snprintf(setting->key, sizeof(setting->key), "%s", key);
    return print_value(field, value, setting) < 0 ? -1 : 1;
}

const char *plait_settings_value(const struct plait_settings *settings,
                                 const char *key)
{
    for (int i = 0; i < settings->n; i++)
        if (!strcmp(settings->at[i].key, key))
            return settings->at[i].value;
    return NULL;
}
