/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_STEP_PRIVATE_H
#define PLAIT_RUNTIME_TRAIN_STEP_PRIVATE_H

#include "runtime/optim/histogram.h"
#include "runtime/parallel/gradsync.h"
#include "runtime/train/step.h"

/* What is summed over the world in a step; the squared gradient norms of the
 * replicas follow. SUM_SHARES: of plait_mesh_share(). */
enum { SUM_LOSS, SUM_MTP, SUM_STOP, SUM_SMALL, SUM_SHARES, NSUMS };

/* What the host reads of a queued step. */
enum { SEEN_SQUARES, SEEN_SMALL, SEEN_LOSS, SEEN_MTP, NSEEN };

struct plait_trainer {
    const struct plait_job_config *config;
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim;
    struct plait_gradsync *sync;
    struct plait_replicas *replicas;     /* NULL: there is one model */
    struct plait_histograms *histograms; /* NULL: log.histograms 0 */
    struct plait_pipeline *pipe;
    struct plait_dataset **train; /* [data.train.n] */
    double *mix;                  /* their weights */
    struct plait_dataset **val;   /* [data.val.n] */
    double *val_losses;           /* [data.val.n] */
    int32_t end_token; /* of a document; -1: documents are not separated */
    struct plait_loader *loader;
    bool lost; /* the next step's data cannot be read: see why_lost */
    struct plait_error why_lost;
    struct plait_run_state state;
    int batch_size;            /* sequences of the step */
    int microbatches;          /* of this rank and one learner, as many as pipe
                                  is made for */
    int most;                  /* the most micro-batches of any step */
    struct plait_batch *batch; /* [most] */
    float *weights; /* [most][micro_batch] with train.noise, else NULL */
    double *loss;   /* device: [2] the loss; images classified right, or the
                       loss of model.mtp_layers */
    double *seen;   /* pinned: [NSEEN], complete at the event `summed` */
    struct plait_event *summed;
    double *sums;   /* [NSUMS + replicas] of a step over the world */
    bool masked;    /* some targets do not count */
    double counted; /* targets of the step that count, of all ranks */
    double *factor; /* [learners] by which gradients are multiplied, to be means
                       over the targets that count; 1 unless some are masked */
    double *counts; /* [2 * learners] */
    struct plait_loss_scale scale;
};

/* -- step.c -------------------------------------------------------------- */

/* Whatever failed, in a sentence. */
int plait_trainer_describe(struct plait_trainer *t, struct plait_error *err);

/* -- step_sums.c --------------------------------------------------------- */

/* This rank's share of the sums over a learner's gradients. */
struct plait_own_sums {
    double squares; /* of the squares of the gradient */
    double small;   /* the same, of gradients of parts of the batch */
    double loss[2]; /* and that of model.mtp_layers */
    struct plait_small_batch part; /* which parts */
};

/* This rank's part of the n sums in t->loss, of which the first is the loss.
 * All ranks of a tp group of a last stage hold the same sums; one of them
 * counts. */
int plait_trainer_local_sums(struct plait_trainer *t, double *sums, int n);
/* Waits for the gradients and reads their sums. */
int plait_trainer_read_sums(struct plait_trainer *t,
                            struct plait_own_sums *own);
/* The same in two steps: the first queues copies of the sums to t->seen, the
 * second waits for these copies, but not for what was queued since. */
int plait_trainer_queue_sums(struct plait_trainer *t,
                             struct plait_own_sums *own);
int plait_trainer_take_sums(struct plait_trainer *t,
                            struct plait_own_sums *own);

/* -- step_data.c --------------------------------------------------------- */

/* Sequences of one micro-batch on each data parallel rank. */
int plait_trainer_batch_unit(const struct plait_trainer *t);

/* A loader of validation set i, from its first sample. */
struct plait_loader *plait_trainer_val_loader(struct plait_trainer *t, int i,
                                              int most,
                                              struct plait_error *err);
void plait_trainer_close_data(struct plait_trainer *t);
/* The next n micro-batches into t->batch. */
int plait_trainer_batch(struct plait_trainer *t, struct plait_loader *loader,
                        int n, float loss_scale, struct plait_error *err);
/* Whether this rank has the data of the step after `step`; waits for them. */
bool plait_trainer_data_ahead(struct plait_trainer *t, int64_t step);
/* Set the random weight of each sequence in t->batch[n], by its number in the
 * run. */
void plait_trainer_noise(struct plait_trainer *t, int n);

/* -- step_targets.c ------------------------------------------------------ */

/* How many targets of n micro-batches are not masked. */
double plait_trainer_count(const struct plait_trainer *t,
                           const struct plait_batch *batch, int n);
/* Whether this rank's count stands for its data-parallel coordinate. */
bool plait_trainer_counts(const struct plait_trainer *t);
/* Set t->counted and t->factor for the micro-batches in t->batch, of which each
 * learner has t->microbatches; `full`: all targets of one gradient. */
int plait_trainer_weigh(struct plait_trainer *t, bool apart, double full);

#endif
