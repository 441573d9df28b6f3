/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_ESTIMATE_H
#define PLAIT_ESTIMATE_H

#include "config.h"
#include "gpu_types.h"
#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What training a gpt2 or llama model takes, before a GPU is touched.
 *
 * FLOPs, for a token of a sequence of s, h wide, in l layers with W weights
 * in matrices each, and a vocabulary of V:
 *     forward    l (2 W + 4 s h) + 2 h V
 *     backward   twice that
 *     recompute  the layers' part again (full), or its 4 s h (selective)
 * which for a GPT with full recompute is 96 B s l h^2 (1 + s/6h + V/16lh) a
 * step (Narayanan et al., SC21). MFU counts forward and backward only, with
 * the attention matrix in full, or its lower half (causal).
 *
 * Time of a step: m micro-batches through p stages of v chunks,
 *     (m + (p-1)/v) * (layers + messages) + m * head + gradients + optimizer
 * where a layer's passes take their matrix products at gpu.matmul of the
 * peak, the elementwise traffic (22 bytes a hidden value, 28 split over tp,
 * 13 an attention score where it is not fused) at the memory's speed, a fixed
 * gpu.layer_s, and tp, cp and ep traffic by cost.h.
 *
 * Memory: 2 + 4 + 12 bytes a weight in 16 bits (4 + 4 + 8 in fp32), divided
 * by the data-parallel ranks as ZeRO says; activations as Korthikanti et al.
 * (2022) count them, s b h (10 + 24/t + 5 a s/(h t)) a layer, (34 + ...)/t
 * with sequence parallelism, without the scores where they are recomputed or
 * fused, 2 s b h with full recompute; times the micro-batches in flight. */
struct plait_memory {
    double weights, gradients, optimizer, activations, buffers, total;
};

struct plait_estimate {
    double parameters;
    double flops_per_token;     /* forward and backward */
    double flops_per_step;      /* with what is recomputed */
    struct plait_memory memory; /* bytes, of the fullest GPU */
    /* seconds of a step */
    double matmul_s, elementwise_s, launch_s, head_s, bubble_s, optimizer_s;
    double axis_s[PLAIT_NAXES]; /* communication */
    double dp_hidden_s;         /* part of axis_s[dp] that overlap can hide */
    double step_s;
    double tokens_per_s;
    double tflops_per_gpu;  /* flops_per_step / step_s / GPUs, in 1e12 */
    double mfu, mfu_causal; /* model FLOPs over the peak's */
    double microbatches;
};

/* `layout` is resolved. Only gpt2 and llama models; anything that does not
 * divide (heads by tp, layers by pp, the batch) is an error. */
int plait_estimate(const struct plait_config *config,
                   const struct plait_layout *layout,
                   const struct plait_gpu_type *gpu,
                   struct plait_estimate *estimate, struct plait_error *err);

/* Shapes that waste the hardware: up to `most` lines into `lines`, each with
 * what to pad to and what that gains. Returns how many. */
struct plait_advice {
    char text[200];
};
int plait_estimate_advise(const struct plait_config *config,
                          const struct plait_layout *layout,
                          const struct plait_gpu_type *gpu,
                          struct plait_advice *lines, int most);

/* How many times `depth` the model of `config` may be deepened (same width)
 * until it no longer fits: the largest number of layers, a multiple of pp,
 * or 0 if not even pp layers fit. */
int plait_estimate_largest(const struct plait_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu);
#ifdef __cplusplus
}
#endif
#endif
