/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_JOB_LAYER_LIST_H
#define PLAIT_TOPOLOGY_JOB_LAYER_LIST_H

#include "topology/job/job_config.h"

/* What lists of other software say of a model's layers, as the keys of Plait
 * that can say the same. Each returns whether they can, and otherwise leaves
 * `model`, whose number of layers is set, as it is. */

/* `n` numbers; item(of, i): number i, from 0 on, or -1 if it is no such
 * number. */
struct plait_layer_list {
    const void *of;
    int n;
    int (*item)(const void *of, int i);
};

/* The layers with experts, ascending: dense_layers or experts_every, of a model
 * with experts. */
bool plait_layer_list_experts(const struct plait_layer_list *list,
                              struct plait_model_config *model);

/* 1 for each layer with rotary positions, and 0 for the others: no_rope_every,
 * of a llama model. */
bool plait_layer_list_rotated(const struct plait_layer_list *list,
                              struct plait_model_config *model);

/* 1 for each layer whose attention stays within chunks, which must be those
 * with rotary positions, and 0 for the others: attention_chunk becomes 0 if
 * there are only others. */
bool plait_layer_list_chunked(const struct plait_layer_list *list,
                              struct plait_model_config *model);

/* The same as the first list by a number: experts in the last of every `step`
 * layers. */
void plait_layer_step_experts(int step, struct plait_model_config *model);

#endif
