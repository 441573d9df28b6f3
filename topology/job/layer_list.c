/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/layer_list.h"

#include "topology/job/model_size.h"

/* Number i; -1: the list has fewer. */
static int number_of(const struct plait_layer_list *list, int i)
{
    return i < list->n ? list->item(list->of, i) : -1;
}

/* Experts in the last of every so many layers, or in all behind the first
 * ones. */
bool plait_layer_list_experts(const struct plait_layer_list *list,
                              struct plait_model_config *model)
{
    struct plait_model_config m = *model;
    int begin = list->n ? number_of(list, 0) : m.layers, n = 0;

    if (begin < 0 || begin > m.layers)
        return false;
    m.dense_layers = m.experts_every = 0;
    if (begin == 0 || begin + 1 >= m.layers || number_of(list, 1) == begin + 1)
        m.dense_layers = begin;
    else
        m.experts_every = begin + 1;
    for (int i = 0; i < m.layers; i++)
        if (!plait_model_dense(&m, i) && number_of(list, n++) != i)
            return false;
    if (n != list->n)
        return false;
    *model = m;
    return true;
}

void plait_layer_step_experts(int step, struct plait_model_config *model)
{
    model->dense_layers = step > model->layers ? model->layers : 0;
    model->experts_every = step > 1 && step <= model->layers ? step : 0;
}

bool plait_layer_list_rotated(const struct plait_layer_list *list,
                              struct plait_model_config *model)
{
    struct plait_model_config m = *model;
    int n = 0;

    while (n < m.layers && number_of(list, n) == 1)
        n++;
    m.no_rope_every = n < m.layers ? n + 1 : 0;
    for (int i = 0; i < m.layers; i++)
        if (number_of(list, i) != plait_model_rotated(&m, i))
            return false;
    *model = m;
    return true;
}

bool plait_layer_list_chunked(const struct plait_layer_list *list,
                              struct plait_model_config *model)
{
    struct plait_model_config m = *model;
    bool some = false;

    for (int i = 0; i < m.layers; i++)
        some |= number_of(list, i) != 0;
    if (!some)
        m.attention_chunk = 0;
    for (int i = 0; i < m.layers; i++)
        if (number_of(list, i) !=
            (m.attention_chunk && plait_model_rotated(&m, i)))
            return false;
    *model = m;
    return true;
}
