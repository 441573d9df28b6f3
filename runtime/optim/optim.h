/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_OPTIM_OPTIM_H
#define PLAIT_RUNTIME_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/model/model.h"

/* A run of elements of one tensor whose optimizer state this rank owns: the
 * whole local shard without ZeRO, a part of it with ZeRO. */
struct plait_optim_slice {
    const struct plait_tensor *tensor;
    size_t first; /* within the tensor's local elements */
    size_t count;
    size_t at;                       /* within its shard's arrays */
    float *master;                   /* fp32, see plait_optim_read(); NULL: the
                                      * weights have none (optim.masters) */
    void *weight;                    /* the model's, of its type */
    void *state[PLAIT_OPTIM_STATES]; /* of the shards' state_type; see
                                      * plait_optim_read(),
                                      * plait_optim_nstates() */
};

/* Owns gradients, master weights and the optimizer's states, one shard per
 * region (runtime/parallel/shard.h). The weights belong to the model. */
struct plait_optim;
struct plait_shards;
struct plait_replicas;

/* Shards the model, which must outlive it, and has it allocate its weights.
 * Only the states are initialised, to 0. Collective over the world, but it may
 * fail on one rank alone. NULL with errno. */
struct plait_optim *plait_optim_create(struct plait_model *model,
                                       struct plait_error *err);
void plait_optim_destroy(struct plait_optim *optim);

/* The slices, in tensor order. */
int plait_optim_slices(const struct plait_optim *optim,
                       const struct plait_optim_slice **slices);

/* Copy bytes of a slice's master or state to and from host memory, wherever
 * they are stored. */
int plait_optim_read(const struct plait_optim *optim, void *to,
                     const void *state, size_t bytes);
int plait_optim_write(const struct plait_optim *optim, void *state,
                      const void *from, size_t bytes);

/* Where and how a piece's numbers are stored. */
enum plait_optim_home {
    PLAIT_PIECE_WEIGHTS, /* fp32, in the memory of masters and states */
    PLAIT_PIECE_BF16,    /* the same memory, bf16 */
    PLAIT_PIECE_HOST,    /* fp32 in host memory */
    PLAIT_PIECE_CODES    /* 8-bit codes, see codes.h */
};

/* Something that a checkpoint stores for a tensor as fp32: its master weights
 * or a state of the optimizer. Either one number for each weight of a slice, or
 * a matrix of another shape for the tensor as a whole; a rank that lists such a
 * matrix has all of it or some whole rows. Equal pieces of several ranks are
 * equal to the last bit, and one of them is saved. */
struct plait_optim_piece {
    const struct plait_tensor *tensor;
    const char *state; /* optim.STATE.TENSOR in a checkpoint; NULL: the weights,
                        * stored under the tensor's name */
    char owner[24];    /* prefix of that name: "replica.3." (replicas.h) */
    enum plait_optim_home home;
    size_t shape[2]; /* of the whole matrix; 0, 0: one number per weight */
    size_t first;    /* first number, in the tensor's local elements or in the
                      * matrix */
    size_t count;
    void *data;       /* NULL: codes */
    int slice, which; /* codes: the slice, and which of its states */
};

/* All pieces of this rank. They are read and written as fp32, however they are
 * stored; codes in multiples of 256 numbers, or to the end. */
int plait_optim_pieces(const struct plait_optim *optim,
                       const struct plait_optim_piece **pieces);
int plait_optim_read_piece(const struct plait_optim *optim,
                           const struct plait_optim_piece *piece, size_t first,
                           size_t n, float *to);
/* Whether ranks with equal slices list equal pieces, all of which are fp32 in
 * the memory of masters and states. Depends on the configuration alone, so that
 * ranks which share a piece, and those that have none, answer alike. */
bool plait_optim_pieces_equal(const struct plait_optim *optim);
/* Why reading a piece failed, directly after it. */
const char *plait_optim_read_error(const struct plait_optim *optim);
int plait_optim_write_piece(const struct plait_optim *optim,
                            const struct plait_optim_piece *piece, size_t first,
                            size_t n, const float *from);

/* Call after master weights were written by others (init, checkpoint): updates
 * the model's weights, and gathers them if they are sharded. */
int plait_optim_refresh(struct plait_optim *optim, struct plait_error *err);

/* Of an optimizer that takes gradients at other weights than those it has
 * learned, its masters: puts these into the model, to be evaluated, and puts
 * the others back. Does nothing for other optimizers. Collective. */
int plait_optim_lend(struct plait_optim *optim, struct plait_error *err);
int plait_optim_return(struct plait_optim *optim, struct plait_error *err);

/* The model's initial weights, a function of seed alone; states 0. */
int plait_optim_init(struct plait_optim *optim, uint64_t seed,
                     struct plait_error *err);

struct plait_shards *plait_optim_shards(const struct plait_optim *optim);

/* The replicas of the model (replicas.h); NULL: there is only one model. Set
 * only by plait_replicas_create(). */
struct plait_replicas *plait_optim_replicas(const struct plait_optim *optim);
void plait_optim_set_replicas(struct plait_optim *optim,
                              struct plait_replicas *replicas);

/* This rank's part of the sum of squares of all reduced gradients. Summed over
 * the world, it counts each element of the model once, whether it is replicated
 * or tied. Waits for the queue. */
int plait_optim_sum_squares(struct plait_optim *optim, double *sum);

/* One step over all slices with gradients multiplied by grad_scale (NaN: the
 * step is skipped); gathers weights that ZeRO has sharded. `step` counts from
 * 1. Collective over the world: grad_scale and lr are the same on all ranks. */
int plait_optim_step(struct plait_optim *optim, double lr, float grad_scale,
                     int64_t step);

/* Whether a whole step can be queued, because the host needs nothing of the
 * gradients for it. If so, these replace plait_optim_sum_squares() and
 * plait_optim_step(): */
bool plait_optim_clips(const struct plait_optim *optim);
/* The same sum, queued; it is in pinned memory once the queue has run it. */
int plait_optim_queue_squares(struct plait_optim *optim, double *pinned);
/* After that: queues the step. Gradients are multiplied by `factor` and then
 * clipped to a norm of `clip` (0: not clipped); if the norm is not finite,
 * nothing changes. Collective over the world: all values are the same on all
 * ranks. */
int plait_optim_step_clipped(struct plait_optim *optim, double lr, double clip,
                             double factor, int64_t step);

/* QK-clip, after the step that followed a global batch's passes: scales the
 * query and key weights of heads whose largest attention logit in these was
 * above optim.qk_clip, unless the step was skipped (`stepped` false).
 * *max_logit is the largest of all heads; untouched if optim.qk_clip is 0.
 * Collective over the world. */
int plait_optim_qk_clip(struct plait_optim *optim, bool stepped,
                        double *max_logit);

/* With graphs.ahead of the mesh a step ends while ZeRO 1 and 2 still gather the
 * weights, each region once it is updated. The model's pass waits for a region
 * where it first uses it (gradsync.h); all that reads or writes weights or
 * pieces outside of a pass calls this before, or is refused with EINPROGRESS.
 * Makes the model's weights whole, if they are not. Collective. */
int plait_optim_settle(struct plait_optim *optim);

/* Dynamic loss scaling: gradients below 2^-24 are 0 in fp16, so the loss is
 * multiplied by `scale` to keep small ones, and a step whose gradients overflow
 * is skipped on all ranks together. */
struct plait_loss_scale {
    bool dynamic; /* fp16; otherwise scale stays 1 */
    double scale;
    int64_t clean;   /* steps since the last change */
    int64_t skipped; /* steps in all */
};

void plait_loss_scale_init(struct plait_loss_scale *s,
                           const struct plait_train_config *config);
/* After a step: whether its gradients overflowed. Pure. */
void plait_loss_scale_update(struct plait_loss_scale *s, bool overflow);

/* The factor of the gradients: min(1, clip / (norm + 1e-6)) / loss_scale, as
 * torch's clip_grad_norm_(); clip 0: 1 / loss_scale; NaN if the norm is not
 * finite. Pure. */
float plait_clip(double norm, double clip, double loss_scale);

/* The peak rate for a global batch of `batch` sequences, if `rate` is right for
 * lr->base_batch: multiplied by their ratio (Goyal et al., arXiv 1706.02677) or
 * its root (You et al., arXiv 1904.00962). Pure. */
double plait_lr_peak(const struct plait_lr_config *lr, double rate, int batch);

/* The weight of step `step` (from 1) in an average of all steps so far that
 * weighs each by the square of its rate: Defazio et al. (arXiv 2405.15682),
 * equation 23. `sum`, of 0s at first, spares later calls what earlier ones have
 * added up. */
struct plait_lr_sum {
    int64_t steps;
    double squares;
};

double plait_lr_share(const struct plait_lr_config *lr, int64_t step,
                      int64_t steps, struct plait_lr_sum *sum);

/* Learning rate of step `step` (from 0). During warm-up: warmup_from of the
 * peak plus (step + 1) / warmup of the rest (Goyal et al., section 2.2), or
 * constantly warmup_from. Then from the peak down to min * peak at `steps`:
 * along a cosine (arXiv 1608.03983) or a line; wsd: along a line that begins
 * after the fraction `stable` of the steps after warm-up (arXiv 2404.06395);
 * step: multiplied by decay_by at each step of decay_at. Pure.
 *
 * SGD's momentum needs no correction when the rate changes (Goyal et al.,
 * section 3): the rate multiplies the whole update and is not part of what the
 * momentum sums up. LARS sums up updates with their rates, as published; what
 * it summed at an earlier rate stays as it was. */
double plait_lr(const struct plait_lr_config *lr, double peak, int64_t step,
                int64_t steps);

#endif
