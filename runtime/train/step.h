/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_STEP_H
#define PLAIT_RUNTIME_TRAIN_STEP_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/data.h"
#include "runtime/optim/histogram.h"
#include "runtime/optim/optim.h"
#include "runtime/optim/replicas.h"
#include "runtime/optim/run_state.h"
#include "runtime/parallel/pipeline.h"
#include "runtime/train/metrics/metrics.h"

/* Model, optimizer, data and schedule of one run, and what a step does with
 * them. */
struct plait_trainer;

/* Makes the model and its optimizer, the weights uninitialised: the caller
 * loads them (resume.h) or calls plait_optim_init(). Opens no data. Collective,
 * but it may fail on one rank alone: the caller makes it a failure of all. */
struct plait_trainer *
plait_trainer_create(const struct plait_job_config *config,
                     struct plait_mesh *mesh, struct plait_error *err);
void plait_trainer_destroy(struct plait_trainer *t);

struct plait_model *plait_trainer_model(struct plait_trainer *t);
struct plait_optim *plait_trainer_optim(struct plait_trainer *t);
/* The histograms of the last step that was a multiple of log.histograms. */
const struct plait_histograms *
plait_trainer_histograms(const struct plait_trainer *t);
/* Its state goes into checkpoints and comes from them. */
struct plait_loss_scale *plait_trainer_loss_scale(struct plait_trainer *t);

/* What goes into checkpoints and comes from them too. */
struct plait_run_state *plait_trainer_state(struct plait_trainer *t);

/* Open the training data at the position that the state gives. Collective, but
 * it may fail on one rank alone. */
int plait_trainer_open_data(struct plait_trainer *t, struct plait_error *err);
/* Move to the position that the state gives now. Local. */
int plait_trainer_seek_data(struct plait_trainer *t, struct plait_error *err);
/* Whether this rank cannot read the data of the next step; the last step has
 * then returned `stop`. */
bool plait_trainer_data_lost(const struct plait_trainer *t,
                             struct plait_error *err);
/* Identify the training data, once they are open. Local. */
int plait_trainer_identify_data(struct plait_trainer *t,
                                struct plait_data_identity *identity,
                                struct plait_error *err);

struct plait_step_result {
    int batch;        /* sequences */
    double loss;      /* mean over the tokens of the step that count */
    double mtp_loss;  /* of model.mtp_layers, over as many; NaN: 0 of these */
    double counted;   /* how many they are; NaN: all */
    double grad_norm; /* before clipping; mean over replicas that are apart */
    double max_logit; /* of attention, before the step; NaN: optim.qk_clip 0 */
    bool skipped;     /* fp16 overflowed, or an outlier with
                         train.skip_outliers: the weights are as before */
    double lr;
    struct plait_observation seen;
    int stop; /* some rank had `stop` set */
};

/* Make step number `step`, counted from 0. Collective; the result is the same
 * on all ranks. If any rank sets `stop`, result->stop is set on all. */
int plait_trainer_step(struct plait_trainer *t, int64_t step, int stop,
                       struct plait_step_result *result,
                       struct plait_error *err);

/* After a step, ZeRO 1 and 2 may still gather the new weights, for which the
 * next one waits where it uses them, as do plait_trainer_eval() and _trace().
 * This makes them whole: call it before anything else reads or writes weights
 * or the optimizer's state. Collective. */
int plait_trainer_settle(struct plait_trainer *t, struct plait_error *err);

/* After a step whose loss or gradient was not finite: where the first such
 * number came from, in a sentence; the step is made again for it, slowly.
 * Collective. */
int plait_trainer_trace(struct plait_trainer *t, char *text, size_t size,
                        struct plait_error *err);

/* Evaluate on train.eval_steps times train.global_batch sequences of each set
 * of data.val, always the same ones. Collective; what `result` points to is
 * valid until the next call. -1, or PLAIT_TRAINER_LOST on all ranks together,
 * with text on one, if some rank's data could not be read: the training is as
 * it was. */
enum { PLAIT_TRAINER_LOST = -3 };
int plait_trainer_eval(struct plait_trainer *t, struct plait_evaluation *result,
                       struct plait_error *err);

#endif
