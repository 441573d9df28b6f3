/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_GOODPUT_H
#define PLAIT_RUNTIME_TRAIN_METRICS_GOODPUT_H

#include <stdint.h>

/* Where the time of a run goes, over all its starts, and what its failures let
 * expect (topology/predict/goodput.h). Times are seconds. */

/* What the files of earlier starts say: METRICS and METRICS.starts. */
struct plait_past {
    double began;   /* when the first start began, Unix; NAN: there was none */
    double trained; /* in steps that count */
    double saved;   /* for checkpoints */
    double lost;    /* in steps that are made again */
    double waited;  /* between a start's last step and the next start */
    int starts, failures;
    /* Of these, what this start finds first. */
    double lost_now, waited_now;
    int failed_now; /* the start before it did not end in order */
};

/* Of a start at `now`, after `step` steps, before the lines of later steps are
 * cut off. Where nothing is on record, a past that is none. */
void plait_past_read(const char *metrics, int64_t step, double now,
                     struct plait_past *past);

struct plait_goodput_account {
    struct plait_past past;
    double opened;         /* when this start began, Unix */
    double prior;          /* failures are believed to be so far apart */
    double started;        /* until the end of the first step; 0: not yet */
    double trained, steps; /* in this start, after its first step */
    double trained_all;    /* in all of its steps */
    double saves, saving;  /* of this start: how many, and how long */
    double reported;       /* of `saving`, in lines of the metrics */
};

/* A step of this start has ended. */
void plait_goodput_step(struct plait_goodput_account *a, double now,
                        double seconds);
/* What was waited for a checkpoint; `begins`: it is a new one. */
void plait_goodput_save(struct plait_goodput_account *a, double seconds,
                        int begins);
/* Seconds for checkpoints since a line of the metrics said so. */
double plait_goodput_unreported(const struct plait_goodput_account *a);
void plait_goodput_reported(struct plait_goodput_account *a);
/* The share of the time since the first start that went into steps that count;
 * NAN: it is too soon. */
double plait_goodput_share(const struct plait_goodput_account *a, double now);
/* Seconds since the first start that went into no step that counts. */
double plait_goodput_lost(const struct plait_goodput_account *a, double now);
/* The share that failures as frequent as so far would leave; `every`: steps
 * between two checkpoints, 0: none. */
double plait_goodput_expected(const struct plait_goodput_account *a, double now,
                              double every);
/* Steps between two checkpoints that lose least; at least 1. */
int64_t plait_goodput_every(const struct plait_goodput_account *a, double now);
double plait_goodput_between(const struct plait_goodput_account *a, double now);

#endif
