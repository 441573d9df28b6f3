/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a Llama 4, which plan and estimate take as plait-convert does
 * (runtime/checkpoint/hf_llama4.c). */
#include "topology/job/foreign_llama4.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/model_size.h"

/* Item n of a list; NULL: it has fewer. */
static const char *find_item(const char *list, int n)
{
    for (; list && n > 0; n--) {
        list = strchr(list, ' ');
        if (list)
            list++;
    }
    return list && *list ? list : NULL;
}

static bool is_item(const char *list, int n, const char *text)
{
    const char *item = find_item(list, n);
    size_t length = strlen(text);

    return item && strncmp(item, text, length) == 0 &&
           (item[length] == ' ' || item[length] == '\0');
}

static bool is_number(const char *list, int n, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    return is_item(list, n, text);
}

/* Experts in the last of every so many layers, or in all behind the first
 * ones. */
static bool read_experts(const struct plait_pairs *p,
                         struct plait_model_config *m)
{
    const char *list = plait_pairs_value(p, "moe_layers");
    const char *first = find_item(list, 0);
    int step = plait_pairs_number(p, "interleave_moe_layer_step", 1), n = 0;
    int begin = first ? atoi(first) : m->layers;

    m->experts = 1; /* or no layer would be dense */
    if (!list) {
        m->dense_layers = step > m->layers ? m->layers : 0;
        m->experts_every = step > 1 && step <= m->layers ? step : 0;
        return step > 0;
    }
    if (begin < 1 || begin + 1 >= m->layers || is_number(list, 1, begin + 1))
        m->dense_layers = begin;
    else
        m->experts_every = begin + 1;
    for (int i = 0; i < m->layers; i++)
        if (!plait_model_dense(m, i) && !is_number(list, n++, i))
            return false;
    return !find_item(list, n);
}

/* Rotary positions in all but the last of every so many layers. */
static bool read_rotated(const struct plait_pairs *p,
                         struct plait_model_config *m)
{
    const char *list = plait_pairs_value(p, "no_rope_layers");
    int n = 0;

    m->family = PLAIT_LLAMA;
    m->no_rope_every = plait_pairs_number(p, "no_rope_layer_interval", 0);
    if (!find_item(list, 0)) /* an empty one says nothing */
        return m->no_rope_every > 0;
    while (n < m->layers && is_number(list, n, 1))
        n++;
    m->no_rope_every = n < m->layers ? n + 1 : 0;
    for (int i = 0; i < m->layers; i++)
        if (!is_number(list, i, plait_model_rotated(m, i)))
            return false;
    return true;
}

/* Attention within chunks in the layers with rotary positions, or in none. */
static bool read_attention(const struct plait_pairs *p,
                           struct plait_model_config *m)
{
    static const char full[] = "full_attention";
    const char *list = plait_pairs_value(p, "layer_types");
    bool chunks = !list;

    m->qk_l2_norm = m->no_rope_every != 1 && plait_pairs_flag(p, "use_qk_norm");
    for (int i = 0; i < m->layers && !chunks; i++)
        chunks = !is_item(list, i, full);
    if (chunks && m->no_rope_every != 1)
        m->attention_chunk = plait_pairs_number(p, "attention_chunk_size", 0);
    for (int i = 0; i < m->layers && list; i++)
        if (!is_item(list, i,
                     m->attention_chunk && plait_model_rotated(m, i)
                         ? "chunked_attention"
                         : full))
            return false;
    return true;
}

int plait_foreign_llama4(const char *path, const struct plait_pairs *p,
                         struct plait_model_config *model,
                         struct plait_error *err)
{
    errno = EINVAL;
    if (!read_experts(p, model))
        return plait_errorf(err,
                            "%s: moe_layers or interleave_moe_layer_step: only "
                            "experts in the last of every so many layers, or "
                            "in all behind the first ones, can be planned",
                            path);
    if (!read_rotated(p, model))
        return plait_errorf(err,
                            "%s: no_rope_layers or no_rope_layer_interval: "
                            "only the last of every so many layers can be "
                            "planned without rotary positions",
                            path);
    if (!read_attention(p, model))
        return plait_errorf(err,
                            "%s: layer_types: only chunked_attention in the "
                            "layers with rotary positions and full_attention "
                            "in the others can be planned",
                            path);
    return 0;
}
