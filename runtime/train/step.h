/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_STEP_H
#define PLAIT_STEP_H

#include "runtime/data/data.h"
#include "runtime/optim/optim.h"
#include "runtime/parallel/pipeline.h"

/* Model, optimizer, data and schedule of one run, and what a step does with
 * them. */
struct plait_trainer;

/* Makes the model and its optimizer, with initial weights; opens no data.
 * Local: ranks may fail one by one, the caller agrees on the outcome. */
struct plait_trainer *plait_trainer_create(const struct plait_config *config,
                                           struct plait_parallel *par,
                                           struct plait_error *err);
void plait_trainer_destroy(struct plait_trainer *t);

struct plait_model *plait_trainer_model(struct plait_trainer *t);
struct plait_optim *plait_trainer_optim(struct plait_trainer *t);
struct plait_pipeline *plait_trainer_pipeline(struct plait_trainer *t);
/* Its state goes into checkpoints and comes from them. */
struct plait_loss_scale *plait_trainer_loss_scale(struct plait_trainer *t);

/* Open the training data, to go on after `step` steps. Local. */
int plait_trainer_open_data(struct plait_trainer *t, int64_t step,
                            struct plait_error *err);

struct plait_step_result {
    double loss;      /* mean over the tokens of the global batch */
    double grad_norm; /* before clipping */
    bool skipped;     /* fp16 overflowed: the weights are as before */
    double lr;
    int stop; /* some rank had `stop` set */
};

/* Step number `step`, from 0. Collective; the result is the same on all
 * ranks. `stop` is handed round with the loss. */
int plait_trainer_step(struct plait_trainer *t, int64_t step, int stop,
                       struct plait_step_result *result,
                       struct plait_error *err);

/* Mean loss over train.eval_steps global batches of data.val, always the
 * same ones. Collective. */
int plait_trainer_eval(struct plait_trainer *t, double *loss,
                       struct plait_error *err);

/* Floating-point operations a second that all ranks together reach in a
 * matrix product of `type`: what MFU is measured against. Collective; before
 * there is a trainer, so that what it takes is not on top of that. */
int plait_trainer_peak(struct plait_parallel *par, enum plait_dtype type,
                       double *flops);

#endif
