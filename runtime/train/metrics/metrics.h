/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_METRICS_H
#define PLAIT_RUNTIME_TRAIN_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/mesh/mesh.h"
#include "runtime/optim/run_state.h"
#include "topology/base/error.h"
#include "topology/base/parts.h"

/* The result of an evaluation on the validation sets. */
struct plait_evaluation {
    double loss;                    /* mean over the sets */
    double accuracy;                /* of images: the share classified right */
    const struct plait_parts *sets; /* NULL: there is one, without a name */
    const double *losses;           /* [sets->n] */
};

/* The parts that the cost model divides a step into; planned and measured
 * times. */
enum plait_step_part {
    PLAIT_SHARE_STEP, /* the whole */
    PLAIT_SHARE_PRODUCTS,
    PLAIT_SHARE_ATTENTION,
    PLAIT_SHARE_TP, /* transfers that no computation hides */
    PLAIT_SHARE_CP,
    PLAIT_SHARE_EP,
    PLAIT_SHARE_DP,
    PLAIT_SHARE_BUBBLE, /* waits for other stages and their messages */
    PLAIT_SHARE_REST,
    PLAIT_NSHARES
};
struct plait_shares {
    double planned[PLAIT_NSHARES], measured[PLAIT_NSHARES]; /* NAN: unknown */
};

/* The report of one step. NaN: nothing to report. */
struct plait_metrics {
    int64_t step; /* from 1 */
    int batch;    /* sequences of this step */
    double loss;
    double mtp_loss; /* of the token after the next; NaN: model.mtp_layers 0 */
    double loss_tokens; /* tokens that the loss is the mean over */
    struct plait_evaluation val;
    double grad_norm;
    double max_logit; /* of attention; NaN: optim.qk_clip 0 */
    double lr;
    struct plait_observation seen;
    bool skipped;   /* no update: the weights are as before */
    int64_t tokens; /* since the run's start */
    double tokens_per_s;
    double mfu, mfu_causal; /* without what a causal mask leaves out */
    double step_s;
    size_t mem_bytes;          /* the most this rank has held */
    size_t host_bytes;         /* the same, offloaded to the host */
    const double *stage_bytes; /* [nstages] */
    int nstages;
    int64_t saved_step; /* of the newest checkpoint, -1: none */
    double save_s;      /* waited for checkpoints since the previous step */
    /* The share of the run's time so far that its steps took, and the share to
     * expect from its failures so far. */
    double goodput, goodput_expected;
    int slowest_rank;     /* -1: not known */
    double rank_s[3];     /* computing time of the quickest, the slowest and the
                             median rank */
    double comm_s;        /* part of step_s: computation waited for messages */
    double comm_hidden_s; /* collectives during computation, over all groups */
    uint64_t comm_bytes[PLAIT_NCOMMS]; /* this rank, this step */
    double comm_wait[PLAIT_NCOMMS];    /* seconds, of comm_s */
    const struct plait_shares *shares; /* of the run, at its end; else NULL */
};

/* One number of a step, for the writers of other formats. */
struct plait_metric {
    const char *name;      /* as in the metrics file */
    const char *open_name; /* by OpenMetrics' rules, without "plait_" */
    const char *help;
    double value;
    const char *label; /* NULL, or what `key` tells apart: group, stage */
    const char *key;   /* valid during the call */
};

/* Call fn for each number that there is; those of one name follow each
 * other. */
typedef void plait_metric_fn(const struct plait_metric *metric, void *arg);
void plait_metrics_each(const struct plait_metrics *m, plait_metric_fn *fn,
                        void *arg);

/* The metrics file: one JSON object a line, flushed line by line. */
struct plait_metrics_file;

/* With `step` 0 a new file; otherwise the run goes on after `step`, and
 * lines of later steps, from before it was interrupted, are cut off. */
struct plait_metrics_file *plait_metrics_create(const char *path, int64_t step,
                                                struct plait_error *err);
int plait_metrics_write(struct plait_metrics_file *file,
                        const struct plait_metrics *m);
void plait_metrics_destroy(struct plait_metrics_file *file);

#endif
