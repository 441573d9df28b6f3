/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between the layers of a config.json's model. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "runtime/checkpoint/hf_read.h"
#include "runtime/checkpoint/hf_types.h"
#include "topology/job/foreign_config.h"
#include "topology/job/model_size.h"

/* -- sliding windows ------------------------------------------------------- */

static const struct plait_hf_only no_window[] = {
    {"layer_types", {"null"}}, /* first: Llama 4's are read */
    {"sliding_window", {"null"}},
    {"use_sliding_window", {"false"}},
    {NULL, {NULL}}};
static const struct plait_hf_only whole_window[] = {
    {"use_sliding_window", {"true"}},
    {"layer_types", {"null"}},
    {NULL, {NULL}}};

static const struct plait_hf_only by_types[] = {
    {"use_sliding_window", {"true"}},
    {"max_window_layers", {"null"}},
    {NULL, {NULL}}};

static bool is_windowed(const json_t *types, int layer)
{
    const char *name = json_string_value(json_array_get(types, (size_t)layer));

    return name && strcmp(name, "sliding_attention") == 0;
}

/* A list with the name of each layer's attention. */
static int check_types(const struct plait_hf_read *r, const json_t *types)
{
    const json_t *type;
    size_t i;

    if (!json_is_array(types) ||
        json_array_size(types) != (size_t)r->model->layers)
        return plait_hf_refuse(r, "layer_types", types,
                               "it must be a list with a name for each layer");
    json_array_foreach(types, i, type)
    {
        const char *name = json_string_value(type);

        if (!name || (strcmp(name, "full_attention") != 0 &&
                      strcmp(name, "sliding_attention") != 0))
            return plait_hf_refuse(r, "layer_types", type,
                                   "plait-train supports full_attention and "
                                   "sliding_attention");
    }
    return 0;
}

/* The same by model.full_attention_first, the layers before the first window,
 * and full_attention_every, by the first layer behind it that has none. */
static int read_types(const struct plait_hf_read *r, const json_t *types)
{
    struct plait_model_config *m = r->model;
    int first = 0, next;
    bool all = true;

    if (check_types(r, types) < 0)
        return -1;
    while (first < m->layers && !is_windowed(types, first))
        first++;
    next = first;
    while (next < m->layers && is_windowed(types, next))
        next++;
    m->full_attention_every = next < m->layers ? next + 1 : 0;
    m->full_attention_first = first < m->layers ? first : 0;
    if (first == m->layers)
        m->sliding_window = 0;
    for (int i = first; i < m->layers; i++)
        all &=
            is_windowed(types, i) == !(m->full_attention_every &&
                                       (i + 1) % m->full_attention_every == 0);
    return all ? 0
               : plait_hf_refuse(r, "layer_types", types,
                                 "plait-train has full attention in the first "
                                 "layers and in the last of every so many, "
                                 "and windows in all others");
}

/* Which layers have the window that was asked for: by layer_types, or else all
 * but the first max_window_layers. */
static int read_windowed(const struct plait_hf_read *r,
                         const struct plait_hf_type *type)
{
    static const struct plait_hf_count every[] = {
        {"sliding_window_pattern", PLAIT_HF_MODEL(full_attention_every), true},
        {NULL, 0, false}};
    const json_t *types = json_object_get(r->root, "layer_types");
    const json_t *first = json_object_get(r->root, "max_window_layers");
    struct plait_model_config *m = r->model;
    json_int_t n = first ? json_integer_value(first) : PLAIT_WINDOW_LAYERS;

    if ((types && !json_is_null(types)) || type->no_rope)
        return read_types(r, types);
    if (type->every) {
        m->full_attention_every = type->every;
        return plait_hf_counts(r, every);
    }
    if (first && (!json_is_integer(first) || n < 0))
        return plait_hf_refuse(r, "max_window_layers", first,
                               "it must be a whole number");
    if (n >= m->layers)
        m->sliding_window = 0;
    else
        m->full_attention_first = (int)n;
    return 0;
}

static int read_window(const struct plait_hf_read *r,
                       const struct plait_hf_type *type)
{
    static const struct plait_hf_count key[] = {
        {"sliding_window", PLAIT_HF_MODEL(sliding_window), true},
        {NULL, 0, false}};
    bool asked = true;

    if (type->window == PLAIT_HF_WINDOW_NONE)
        return plait_hf_check_only(r, no_window);
    if (type->window != PLAIT_HF_WINDOW_ASKED &&
        plait_hf_check_only(r, type->window == PLAIT_HF_WINDOW ? whole_window
                                                               : by_types) < 0)
        return -1;
    if (type->window == PLAIT_HF_WINDOW_ASKED &&
        plait_hf_bool(r, "use_sliding_window", false, &asked) < 0)
        return -1;
    if (!asked)
        return 0;
    if (!json_object_get(r->root, "sliding_window"))
        r->model->sliding_window = type->reach;
    if (plait_hf_counts(r, key) < 0)
        return -1;
    return type->window != PLAIT_HF_WINDOW && r->model->sliding_window
               ? read_windowed(r, type)
               : 0;
}

/* -- layers without rotary positions --------------------------------------- */

static int read_number(const void *list, int i)
{
    const json_t *item = json_array_get(list, (size_t)i);
    json_int_t number = json_integer_value(item);

    return json_is_integer(item) && number >= 0 && number <= INT_MAX
               ? (int)number
               : -1;
}

struct plait_layer_list plait_hf_layer_list(const json_t *list)
{
    size_t n = json_array_size(list);

    return (struct plait_layer_list){
        list, n < PLAIT_HF_COUNT_MOST ? (int)n : PLAIT_HF_COUNT_MOST,
        read_number};
}

static int read_no_rope_list(const struct plait_hf_read *r, const json_t *list)
{
    struct plait_layer_list rotated = plait_hf_layer_list(list);

    return plait_layer_list_rotated(&rotated, r->model)
               ? 0
               : plait_hf_refuse(r, "no_rope_layers", list,
                                 "plait-train leaves out the last of every so "
                                 "many layers, which are 0 in a list of 1 and "
                                 "0");
}

/* EXAONE 4's, which are those without a window where others have one; a window
 * that no layer has leaves none with rotary positions. */
static int read_no_rope_full(const struct plait_hf_read *r)
{
    const json_t *window = json_object_get(r->root, "sliding_window");
    struct plait_model_config *m = r->model;

    if (m->full_attention_first ||
        (!m->sliding_window && !json_is_null(window)))
        return plait_hf_refuse(r, "layer_types",
                               json_object_get(r->root, "layer_types"),
                               "as layers without a window have no rotary "
                               "positions, plait-train needs windows in the "
                               "first layers");
    m->no_rope_every = m->sliding_window ? m->full_attention_every : 0;
    return 0;
}

static int read_no_rope(const struct plait_hf_read *r,
                        const struct plait_hf_type *type)
{
    static const struct plait_hf_only none[] = {
        {"no_rope_layers", {"null"}},
        {"no_rope_layer_interval", {"null"}},
        {NULL, {NULL}}};
    static const struct plait_hf_count every[] = {
        {"no_rope_layer_interval", PLAIT_HF_MODEL(no_rope_every), false},
        {NULL, 0, false}};
    const json_t *list = json_object_get(r->root, "no_rope_layers");

    if (!type->no_rope)
        return plait_hf_check_only(r, none) < 0 ? -1
               : type->no_rope_full             ? read_no_rope_full(r)
                                                : 0;
    if (list && !json_is_null(list) &&
        !(type->llama4 && json_array_size(list) == 0))
        return read_no_rope_list(r, list);
    r->model->no_rope_every = type->no_rope;
    return json_object_get(r->root, "no_rope_layer_interval")
               ? plait_hf_counts(r, every)
               : 0;
}

int plait_hf_layers(const struct plait_hf_read *r,
                    const struct plait_hf_type *type)
{
    if (type->llama4)
        return plait_hf_check_only(r, no_window + 1) < 0 ||
                       read_no_rope(r, type) < 0
                   ? -1
                   : plait_hf_llama4_attention(r);
    return read_window(r, type) < 0 ? -1 : read_no_rope(r, type);
}
