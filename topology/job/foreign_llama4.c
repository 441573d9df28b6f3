/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of a Llama 4, which plan and estimate take as plait-convert does
 * (runtime/checkpoint/hf_llama4.c). */
#include "topology/job/foreign_llama4.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "topology/job/layer_list.h"
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

static int count_items(const char *list)
{
    int n = 0;

    for (list = find_item(list, 0); list; list = find_item(list, 1))
        n++;
    return n;
}

static int read_number(const void *list, int i)
{
    const char *item = find_item(list, i);
    char *end;
    long number;

    if (item[0] < '0' || item[0] > '9')
        return -1;
    number = strtol(item, &end, 10);
    return (*end == ' ' || *end == '\0') && number <= INT_MAX ? (int)number
                                                              : -1;
}

static int read_kind(const void *list, int i)
{
    static const char *const kinds[] = {"full_attention", "chunked_attention"};
    const char *item = find_item(list, i);
    size_t length = strcspn(item, " ");

    for (int k = 0; k < 2; k++)
        if (strlen(kinds[k]) == length && !strncmp(item, kinds[k], length))
            return k;
    return -1;
}

static bool read_experts(const struct plait_pairs *p,
                         struct plait_model_config *m)
{
    const char *list = plait_pairs_value(p, "moe_layers");
    int step = plait_pairs_number(p, "interleave_moe_layer_step", 1);

    m->experts = 1; /* or no layer would be dense */
    if (list)
        return plait_layer_list_experts(
            &(struct plait_layer_list){list, count_items(list), read_number},
            m);
    plait_layer_step_experts(step, m);
    return step > 0;
}

/* Rotary positions in all but the last of every so many layers. */
static bool read_rotated(const struct plait_pairs *p,
                         struct plait_model_config *m)
{
    const char *list = plait_pairs_value(p, "no_rope_layers");
    int n = count_items(list);

    m->family = PLAIT_LLAMA;
    m->no_rope_every = plait_pairs_number(p, "no_rope_layer_interval", 0);
    return n == 0 /* an empty one says nothing */
               ? m->no_rope_every > 0
               : plait_layer_list_rotated(
                     &(struct plait_layer_list){list, n, read_number}, m);
}

/* Attention within chunks in the layers with rotary positions, or in none. */
static bool read_attention(const struct plait_pairs *p,
                           struct plait_model_config *m)
{
    const char *list = plait_pairs_value(p, "layer_types");
    bool rotated = m->no_rope_every != 1;

    m->qk_l2_norm = rotated && plait_pairs_flag(p, "use_qk_norm");
    m->attention_chunk =
        rotated ? plait_pairs_number(p, "attention_chunk_size", 0) : 0;
    return !list ||
           plait_layer_list_chunked(
               &(struct plait_layer_list){list, count_items(list), read_kind},
               m);
}

int plait_foreign_llama4(const char *path, const struct plait_pairs *p,
                         struct plait_model_config *model,
                         struct plait_error *err)
{
    errno = EINVAL;
    if (!read_experts(p, model))
        return plait_errorf(err,
                            "%s: moe_layers or interleave_moe_layer_step: only "
                            "experts in every Nth layer, or in all layers "
                            "after the first ones, can be planned",
                            path);
    if (!read_rotated(p, model))
        return plait_errorf(err,
                            "%s: no_rope_layers or no_rope_layer_interval: "
                            "only every Nth layer can be planned without "
                            "rotary positions",
                            path);
    if (!read_attention(p, model))
        return plait_errorf(err,
                            "%s: layer_types: only chunked_attention in the "
                            "layers with rotary positions and full_attention "
                            "in the others can be planned",
                            path);
    return 0;
}
