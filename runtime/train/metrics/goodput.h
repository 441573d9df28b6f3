/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_GOODPUT_H
#define PLAIT_RUNTIME_TRAIN_METRICS_GOODPUT_H

#include <stdint.h>

/* Where the time of a run goes, over all its starts, and the goodput to expect
 * from its failures so far (topology/predict/goodput.h). Times are seconds. */

/* What the files of earlier starts say: METRICS and METRICS.starts. */
struct plait_past {
    double began;   /* when the first start began, Unix; NAN: there was none */
    double trained; /* in steps that count */
    double saved;   /* for checkpoints */
    double lost;    /* in steps that were made again */
    double waited;  /* between a start's last step and the next start */
    int starts, failures;
    /* The part of lost, waited and failures that this start adds. */
    double lost_now, waited_now;
    int failed_now; /* the previous start did not end in order */
};

/* Read the past of a start at `now` that goes on after `step` steps. Call it
 * before the log cuts off the lines of later steps. Where nothing is on record,
 * .began is NAN and all else 0. */
void plait_past_read(const char *metrics, int64_t step, double now,
                     struct plait_past *past);

struct plait_goodput_account {
    struct plait_past past;
    double opened;         /* when this start began, Unix */
    double prior;          /* time between failures that is assumed at first */
    double started;        /* time until the first step's end; 0: not yet */
    double trained, steps; /* in this start, after its first step */
    double trained_all;    /* in all of its steps */
    double saves, saving;  /* of this start: how many, and how long */
    double reported;       /* part of `saving` that the metrics' lines have */
};

/* A step of this start has ended. */
void plait_goodput_step(struct plait_goodput_account *a, double now,
                        double seconds);
/* Training has waited for a checkpoint. begins: 1 if it is a new one, else
 * 0. */
void plait_goodput_save(struct plait_goodput_account *a, double seconds,
                        int begins);
/* Seconds waited for checkpoints that no line of the metrics has yet. */
double plait_goodput_unreported(const struct plait_goodput_account *a);
void plait_goodput_reported(struct plait_goodput_account *a);
/* The share of the time since the first start that went into steps that count;
 * NAN: it is too soon. */
double plait_goodput_share(const struct plait_goodput_account *a, double now);
/* Seconds since the first start that went into no step that counts. */
double plait_goodput_lost(const struct plait_goodput_account *a, double now);
/* The share to expect if failures stay as frequent as so far; `every`: steps
 * between two checkpoints, 0: none. */
double plait_goodput_expected(const struct plait_goodput_account *a, double now,
                              double every);
/* How many steps between two checkpoints lose the least time; at least 1. */
int64_t plait_goodput_every(const struct plait_goodput_account *a, double now);
double plait_goodput_between(const struct plait_goodput_account *a, double now);

#endif
