/* SPDX-License-Identifier: Apache-2.0 */
#include "fits_case.h"

static void check_sync(void)
{
    const char *from = "sync.mode post-local: sync.from 100 must be from 1 to "
                       "below train.steps 100";

    CASE(CONFIG, "sync.from 5: sync.mode must be post-local, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.from = 5);
    CASE(CONFIG, from, c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 100,
         c.sync.from = 100);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 100,
         c.sync.from = 99);
    CASE(CONFIG, "sync.mode post-local: train.steps 1 must be at least 2",
         c.sync.mode = PLAIT_SYNC_POST_LOCAL, c.train.steps = 1,
         c.sync.from = 1);
    CASE(CONFIG,
         "log.histograms: log.tensorboard must name the directory that they "
         "go to",
         c.log.histograms = 10);
    CASE(CONFIG, NULL, c.log.histograms = 10, c.log.tensorboard = "tb");
    CASE(CONFIG,
         "log.histograms: sync.mode must be each, not diloco, whose replicas "
         "have gradients of their own",
         c.log.histograms = 10, c.log.tensorboard = "tb",
         c.sync.mode = PLAIT_SYNC_DILOCO);
    CASE(CONFIG, "sync.fragments 2: sync.mode must be diloco, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.fragments = 2);
    CASE(CONFIG,
         "sync.fragments 9 must be at most model.layers 8 and sync.steps 500",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 9);
    CASE(CONFIG,
         "sync.fragments 4 must be at most model.layers 8 and sync.steps 3",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 4,
         c.sync.steps = 3);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.fragments = 4,
         c.sync.steps = 4);
    CASE(CONFIG, "sync.gradients fp8: sync.mode must be diloco, not sma",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.gradients = PLAIT_SYNC_FP8);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO,
         c.sync.gradients = PLAIT_SYNC_BF16);
    CASE(CONFIG, "sync.delay 2: sync.mode must be diloco, not local",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.delay = 2);
    CASE(CONFIG, "sync.delay 3 must be below sync.steps 3",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.steps = 3, c.sync.delay = 3);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.steps = 3,
         c.sync.delay = 2, c.sync.mixing = 1);
    CASE(CONFIG,
         "sync.mixing 0.5: sync.delay must be at least 1; without a delay "
         "sync.mixing has no effect",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.mixing = 0.5);
    CASE(CONFIG,
         "sync.mixing 0: sync.delay must be at least 1; without a delay "
         "sync.mixing has no effect",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.mixing = 0);
    CASE(ALL,
         "sync.gradients fp8: dp must be below 8, not 8: with so many replicas "
         "it sends no fewer bytes than fp32; use fp32",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.gradients = PLAIT_SYNC_FP8,
         l.size[PLAIT_DP] = 8);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_DILOCO,
         c.sync.gradients = PLAIT_SYNC_FP8, l.size[PLAIT_DP] = 4);
    CASE(ALL,
         "sync.gradients bf16: dp must be below 4, not 4: with so many "
         "replicas it sends no fewer bytes than fp32; use fp32",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.gradients = PLAIT_SYNC_BF16,
         l.size[PLAIT_DP] = 4);
    CASE(CONFIG,
         "sync.steps 2: sync.mode must be local, post-local, sma or diloco, "
         "not each",
         c.sync.steps = 2);
    CASE(CONFIG, NULL, c.sync.steps = 1);
    CASE(CONFIG,
         "sync.learners above 1, or auto: sync.mode must be sma, not diloco",
         c.sync.mode = PLAIT_SYNC_DILOCO, c.sync.learners = 2);
    CASE(CONFIG,
         "sync.mode local: parallel.zero must be 0: it would share out one "
         "optimizer state among replicas that differ",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.parallel.zero = 1);
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_LOCAL, c.sync.steps = 1,
         c.parallel.zero = 1);
    CASE(CONFIG,
         "sync.mode sma: ep must be 1: it would share out one set of experts "
         "among replicas that differ",
         c.sync.mode = PLAIT_SYNC_SMA, c.parallel.layout.size[PLAIT_EP] = 2);
    CASE(CONFIG,
         "sync.mode diloco: parallel.offload must be none or activations: it "
         "would move one optimizer state for replicas that differ",
         c.sync.mode = PLAIT_SYNC_DILOCO,
         c.parallel.offload = PLAIT_OFFLOAD_OPTIMIZER);
    CASE(CONFIG,
         "sync.mode local: optim.name must be adamw, sgd or lion: the others "
         "need norms, scales or products of many weights, which a single "
         "replica does not compute",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.optim.kind = PLAIT_OPTIM_LAMB);
    CASE(CONFIG,
         "sync.mode local: parallel.grad_sync must be bucketed or flat, not "
         "naive",
         c.sync.mode = PLAIT_SYNC_LOCAL,
         c.parallel.grad_sync = PLAIT_GRAD_NAIVE);
    CASE(CONFIG,
         "sync.mode local: parallel.all_reduce must be auto or flat, not "
         "hierarchical",
         c.sync.mode = PLAIT_SYNC_LOCAL,
         c.parallel.all_reduce = PLAIT_ALL_REDUCE_HIERARCHICAL);
    CASE(CONFIG,
         "sync.mode local: train.graph must be auto or off: the replicas' "
         "meetings are not recorded",
         c.sync.mode = PLAIT_SYNC_LOCAL, c.train.graph = PLAIT_GRAPH_ON);
    CASE(CONFIG,
         "sync.mode sma: with sync.learners above 1, or auto, train.precision "
         "must be fp32 or bf16, not fp16: learners overflow one by one, but "
         "share a loss "
         "scale",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.train.precision = PLAIT_FP16);
    CASE(CONFIG,
         "train.skip_outliers and batch.growth: sync.learners must be 1",
         c.sync.mode = PLAIT_SYNC_SMA,
         c.sync.learners = PLAIT_SYNC_LEARNERS_AUTO,
         c.train.skip_outliers = true);
    CASE(ALL,
         "train.global_batch 16 is not divisible by dp 4 * sync.learners 4 * "
         "train.micro_batch 2; 32 would fit",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 4,
         l.size[PLAIT_DP] = 4);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         l.size[PLAIT_DP] = 4);
    /* pp may come from the plan alone, which is not known yet */
    CASE(CONFIG, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2);
    CASE(ALL, NULL, c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 4);
    CASE(ALL, "schedule interleaved: 4 micro-batches are not divisible by pp 3",
         c.sync.mode = PLAIT_SYNC_SMA, c.sync.learners = 2,
         c.parallel.schedule = PLAIT_SCHEDULE_INTERLEAVED,
         c.parallel.virtual_stages = 2, l.size[PLAIT_PP] = 3);
}

int main(void)
{
    check_sync();
    return done_testing();
}
