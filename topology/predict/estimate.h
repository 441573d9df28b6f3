/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_ESTIMATE_H
#define PLAIT_TOPOLOGY_PREDICT_ESTIMATE_H

#include "topology/job/gpu_types.h"
#include "topology/job/job_config.h"
#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The memory and time that training a model takes, estimated without a GPU. For
 * image models tokens are images, and blocks are as image_shape.h walks them: 6
 * FLOPs for each multiplication of an image. What follows is for gpt2 and
 * llama.
 *
 * FLOPs, for a token of a sequence of s, h wide, in l layers with W weights in
 * matrices each, and a vocabulary of V (a model that predicts a token further
 * has a layer, 4 h^2 and 2 h V more, none of it recomputed):
 *     forward    l (2 W + 4 s h) + 2 h V
 *     backward   twice that
 *     recompute  the layers' part again (full), or its 4 s h (selective, where
 *                that is attention: not in plait-train, framework.h)
 * which for a GPT with full recompute is 96 B s l h^2 (1 + s/6h + V/16lh) a
 * step (Narayanan et al., SC21). MFU counts forward and backward only, with the
 * attention matrix in full, or its lower half (causal).
 *
 * Time of a step: the pipeline is as slow as its slowest rank, which is the
 * first or the last one by stage.h. Each of its m micro-batches takes it t, and
 * once a step it waits for each of the other ranks' t_r (a chunk's part t_r / v
 * when interleaved, forward + input gradient - weight gradient in ZB-H1, m t_r
 * when naive):
 *     m t + sum of the others' t_r + gradients + optimizer
 * where products are made of tiles at gpu.matmul (fp8: matmul8) of the peak,
 * fused attention at gpu.attention of it on what a causal mask leaves,
 * elementwise traffic at gpu.stream of the memory's speed (estimate_work.c),
 * and tp, cp and ep traffic by cost.h (estimate_pieces.c); the last rank also
 * computes the head. Gradients, and the weights of ZeRO 3, are transferred
 * during the passes, which that slows down (estimate_time.c). All of it waits
 * for the slowest GPU. What each framework fuses and hides is in framework.h.
 * `plait simulate` plays a step.
 *
 * Memory, of the fullest rank, is what the runtime allocates: 2 + 4 + 12 bytes
 * a weight in 16 bits (4 + 4 + 8 in fp32), divided by the data-parallel ranks
 * as ZeRO does; the activations of the micro-batches in flight, for each of
 * them and each layer 4 values of the hidden state (split over tp with sequence
 * parallelism), and q, k, v, the attention's output and the mlp's (split over
 * tp), or the hidden state alone where the rest is recomputed, or all but the
 * norms' and the activation's outputs (selective), and one layer's work space
 * (of offloaded activations two layers' worth is on the GPU); buffers for
 * messages, for ZeRO's blocks at work, and of a GPU its context and what NCCL
 * keeps for each communicator (estimate_comms.c). */
struct plait_memory {
    double weights, gradients, optimizer, activations, buffers, total;
    double communicators; /* NCCL's part of the buffers; of other software
                             it is not counted by communicator */
    double host; /* what is offloaded to the host's memory, not in total */
    /* With experts: the total where tokens spread evenly over them (expected),
     * and where all that are routed in an expert group go to this GPU's
     * (worst). plait-train allocates for the worst case before the first step,
     * so that total is worst; for other software total is expected. Without
     * experts both are total. */
    double expected, worst;
};

struct plait_estimate {
    double parameters, active;  /* `active`: used for one token */
    double flops_per_token;     /* forward and backward */
    double flops_per_step;      /* recompute included */
    struct plait_memory memory; /* bytes, of the fullest GPU */
    /* seconds of a step */
    double matmul_s, attention_s, elementwise_s, launch_s, head_s, bubble_s;
    double optimizer_s;
    double axis_s[PLAIT_NAXES]; /* communication that nothing hides */
    double dp_hidden_s; /* hidden behind computing; it counts only in that it
                           slows that, in axis_s[dp] */
    double offload_s;   /* transfers to the host that nothing hides, and
                           the optimizer's work there */
    double straggler_s; /* wait for the slowest of all GPUs */
    double cores_s;     /* wait for cores that other ranks use */
    double crowded;     /* by how many times cores_s lengthens a step */
    double step_s;
    double tokens_per_s;
    double tflops_per_gpu; /* flops_per_step / step_s / GPUs, in 1e12 */
    /* Plait on NVIDIA's GPUs since the A100: what computes attention, "cuDNN"
     * or Plait's "own kernels", and why not cuDNN alone; else both "". */
    const char *attention_by, *attention_why;
    double mfu, mfu_causal; /* model FLOP/s over the peak */
    double microbatches;
    int fullest; /* the pipeline rank that `memory` is of */
    int slowest; /* the slowest pipeline rank, which the times are of */
};

/* Goodput, the share of a long run's time in which it makes progress in spite
 * of failures, and the time between two failures. A GPU's machine ends a run
 * every failure_hours (Llama 3, arXiv 2407.21783, section 3.3.4: 419 times in
 * 54 days of 16,384 GPUs, 50,700 hours). A restart takes RESTART seconds and
 * what was done since the last checkpoint, which costs SAVE seconds and is made
 * as often as is best (Young 1974). That gives 0.90 for Llama 3, which reports
 * "above 90 %". */
#define PLAIT_FAILURE_HOURS 50700.0
struct plait_goodput {
    double share;
    double between;    /* seconds */
    double checkpoint; /* seconds between two of them */
};
void plait_estimate_goodput(const struct plait_gpu_type *gpu, int gpus,
                            struct plait_goodput *goodput);

/* `layout` is resolved. Anything that does not divide (heads by tp, layers by
 * pp, the batch) is an error. */
int plait_estimate(const struct plait_job_config *config,
                   const struct plait_layout *layout,
                   const struct plait_gpu_type *gpu,
                   struct plait_estimate *estimate, struct plait_error *err);

/* Memory of a GPU of pipeline rank `stage`, 0 <= stage < pp. */
int plait_estimate_memory(const struct plait_job_config *config,
                          const struct plait_layout *layout,
                          const struct plait_gpu_type *gpu, int stage,
                          struct plait_memory *memory, struct plait_error *err);

/* Find shapes that waste the hardware: up to `most` lines into `lines`, each
 * with what to pad to and what that gains. Returns how many. */
struct plait_advice {
    char text[200];
};
int plait_estimate_advise(const struct plait_job_config *config,
                          const struct plait_layout *layout,
                          const struct plait_gpu_type *gpu,
                          struct plait_advice *lines, int most);

/* How deep the model of `config` may become (with the same width) until it no
 * longer fits: the largest number of layers, a multiple of pp *
 * parallel.virtual, or 0 if not even that many fit. */
int plait_estimate_largest(const struct plait_job_config *config,
                           const struct plait_layout *layout,
                           const struct plait_gpu_type *gpu);
#ifdef __cplusplus
}
#endif
#endif
