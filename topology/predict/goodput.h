/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PREDICT_GOODPUT_H
#define PLAIT_TOPOLOGY_PREDICT_GOODPUT_H

/* What failures leave of a run, from what was measured of it. Pure; times are
 * seconds. */

/* How far apart two failures are. `prior` is what is believed before any, and
 * counts like a run of that length with one: in `ran` there were `failures`. */
double plait_failures_between(double prior, double ran, int failures);

/* The time between two checkpoints with which least is lost, where one holds
 * the training up for `save` (Daly, 2006; nearly sqrt(2 save between), Young,
 * 1974). At most `between`. */
double plait_checkpoint_interval(double save, double between);

struct plait_failure_costs {
    double between; /* two failures */
    double every;   /* two checkpoints; 0: there are none */
    double save;    /* that one holds the training up */
    double start;   /* from a process's start to the end of its first step */
    double wait;    /* from a failure until the next start */
};

/* The share of its time that such a run trains: the expected effective training
 * time ratio (ETTR) of Kokolis et al., arXiv 2410.21680, with the cost of saves
 * beside it: what is not lost to restarts and repeated steps, over the time
 * that goes by with saves and waiting. `every` 0: all since the start is
 * repeated, and `ran` is that. */
double plait_expected_goodput(const struct plait_failure_costs *costs,
                              double ran);

#endif
