/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_PLAN_PLAN_CODE_H
#define PLAIT_TOPOLOGY_PLAN_PLAN_CODE_H

/* An encoded plan, for example
 *     1/2.1.1.4.2/tp-cp-ep-dp-pp/topology/0-6:2*2+1/8*2
 * format version; sizes of tp, cp, ep, dp, pp; rank order; placement; the nodes
 * in the order of their NODE_RANK as runs; their tasks in that same order
 * (nodes*tasks). A run is from-to:step, counting down if from > to, here
 * 0,2,4,6; *2+1 makes it two runs, the second one higher: 1,3,5,7. A list that
 * ends in |16.1.4 is folded (place.h): the nodes of a leaf are then adjacent in
 * it, though they are far apart in NODE_RANK. So the length grows with the
 * number of runs of neighbours in Slurm's order under one leaf. Where NVLink
 * joins nodes, their domains follow in Slurm's order, as /nodes*domain; such a
 * plan has another version, as releases before do not read it. */

#define PLAN_CODE_VERSION "1"
#define PLAN_CODE_DOMAINS "2"

/* from, from + step, ... (count of them), and all that `repeat` times, each
 * time `shift` higher. */
struct plan_run {
    int from, step, count, repeat, shift;
};

#endif
