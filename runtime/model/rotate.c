/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary positions of a layer's queries and keys. */
#include "kernels/rope.h"
#include "runtime/model/internal.h"
#include "topology/job/model_size.h"

/* Tokens of a sequence; of a text that grows, those that it may have. */
static int text_length(const struct plait_work *w)
{
    return w->added ? w->model->state->cache.length : w->shape->seq_len;
}

static struct plait_rope_angles angles_of(const struct plait_work *w)
{
    const struct plait_model_config *c = &w->model->config->model;
    bool local = c->rope_theta_window > 0 && plait_model_local(c, w->layer);
    struct plait_rope_angles angles = {.theta = local ? c->rope_theta_window
                                                      : c->rope_theta,
                                       .factor = local ? 1 : c->rope_factor,
                                       .low = c->rope_low_freq_factor,
                                       .high = c->rope_high_freq_factor,
                                       .original = c->rope_original_len};

    if (!(angles.factor > 1) || c->rope_scaling == PLAIT_ROPE_LLAMA3)
        return angles;
    angles.size = plait_model_rope_size(c);
    if (c->rope_scaling == PLAIT_ROPE_LONGROPE) {
        angles.pairs = text_length(w) > c->rope_original_len ? c->rope_long.at
                                                             : c->rope_short.at;
        return angles;
    }
    plait_rope_yarn(&angles, plait_model_rope_columns(c), c->rope_truncate);
    return angles;
}

int plait_attention_rotate(const struct plait_work *w, void *qkv, int direction)
{
    const struct plait_model_config *c = &w->model->config->model;
    struct plait_rope rope = {.type = w->type,
                              .stride = w->d->qkv,
                              .heads = w->d->heads + w->d->kv_heads,
                              .head_dim = w->d->head_dim,
                              .columns = plait_model_rope_columns(c),
                              .direction = direction,
                              .angles = angles_of(w)};
    struct plait_row_span span;
    int n = plait_model_rotated(c, w->layer) ? plait_count_spans(w) : 0;

    for (int i = 0; i < n; i++) {
        plait_next_span(w, i, &span);
        rope.x = plait_element_at(w, qkv, span.first * w->d->qkv);
        rope.at = plait_span_positions(w, &span);
        rope.N = span.rows;
        if (w->ops->rope(w->q, &rope) < 0)
            return -1;
    }
    return 0;
}
