/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_GOODPUT_H
#define PLAIT_TOPOLOGY_PREDICT_GOODPUT_H

/* How much of a run failures leave, from what was measured of it. Pure; times
 * are seconds. */

/* The time between two failures. `prior` is the assumption before any was seen,
 * and counts like a run of that length with one failure; in `ran` seconds there
 * were `failures`. */
double plait_failures_between(double prior, double ran, int failures);

/* The time between two checkpoints with which least is lost, where each one
 * stops the training for `save` (Daly, 2006; nearly sqrt(2 save between),
 * Young, 1974). At most `between`. */
double plait_checkpoint_interval(double save, double between);

struct plait_failure_costs {
    double between; /* from one failure to the next */
    double every;   /* from one checkpoint to the next; 0: none */
    double save;    /* for which one stops the training */
    double start;   /* from a process's start to the end of its first step */
    double wait;    /* from a failure until the next start */
};

/* The share of its time in which such a run trains: the expected effective
 * training time ratio (ETTR) of Kokolis et al., arXiv 2410.21680, with the cost
 * of saves added: the time not lost to restarts and repeated steps, over the
 * time that passes with saves and waiting. `every` 0: everything since the
 * start is repeated, and that took `ran`. */
double plait_expected_goodput(const struct plait_failure_costs *costs,
                              double ran);

#endif
