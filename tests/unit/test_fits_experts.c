/* SPDX-License-Identifier: Apache-2.0 */
#include "fits_case.h"

#define SIGMOID c.model.experts_scores = PLAIT_SCORES_SIGMOID
#define BATCH                                           \
    c.model.experts_balance_over = PLAIT_BALANCE_BATCH, \
    c.model.experts_balance = 0.01

/* Experts for all tokens, and layers without experts. */
static void check_layers(void)
{
    CASE(TRAINER,
         "model.shared_experts: plait-train trains them in llama models, not "
         "in gpt2",
         TO_GPT2, c.model.shared_experts = 1);
    CASE(TRAINER, NULL, c.model.shared_experts = 1);
    CASE(CONFIG, "model.shared_experts: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.shared_experts = 1);
    CASE(CONFIG, "model.dense_layers 9 must be at most model.layers 8",
         c.model.dense_layers = 9);
    CASE(CONFIG, NULL, c.model.dense_layers = 8);
    CASE(TRAINER, NULL, c.model.dense_layers = 2, c.model.dense_ffn = 48);
    CASE(TRAINER,
         "model.dense_ffn 48: model.dense_layers is 0 and model.experts_every "
         "is 0 or 1, so no layer has an mlp of this width",
         c.model.dense_ffn = 48);
    CASE(MODEL, NULL, c.model.dense_ffn = 50, l.size[PLAIT_TP] = 4);
    CASE(MODEL, "model.dense_ffn 50 is not divisible by tp 4",
         c.model.dense_layers = 1, c.model.dense_ffn = 50,
         l.size[PLAIT_TP] = 4);
    CASE(CONFIG, "model.experts_every: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_every = 2);
    CASE(CONFIG,
         "model.dense_layers 1 with model.experts_every 2: set one of them",
         c.model.dense_layers = 1, c.model.experts_every = 2);
    CASE(TRAINER, NULL, c.model.experts_every = 2, c.model.dense_ffn = 48);
    CASE(TRAINER, NULL, c.model.experts_every = 8);
    CASE(TRAINER,
         "model.experts_every 9 is more than model.layers 8, so no layer has "
         "experts",
         c.model.experts_every = 9);
}

static void check_scores(void)
{
    CASE(CONFIG, "model.experts_top_k 9 must be from 1 to model.experts 8",
         c.model.experts_top_k = 9);
    CASE(CONFIG, NULL, c.model.experts_top_k = 8);
    CASE(CONFIG, NULL, c.model.experts = 0, c.model.experts_top_k = 9);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_capacity: "
         "plait-train cannot combine the two",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_capacity = 1.5);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_scale: plait-train "
         "cannot combine the two",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_scale = 2);
    CASE(CONFIG,
         "model.experts_scores input with model.experts_weights: plait-train "
         "cannot combine the two",
         c.model.experts_scores = PLAIT_SCORES_INPUT,
         c.model.experts_weights = PLAIT_WEIGHTS_SCORES);
    CASE(CONFIG, "model.experts_scores: model.experts is 0, the model has none",
         c.model.experts = 0, SIGMOID);
    CASE(CONFIG, "model.experts_scale: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_scale = 2);
    CASE(CONFIG,
         "model.experts_weights: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_weights = PLAIT_WEIGHTS_SCORES);
    CASE(CONFIG, NULL, c.model.experts_weights = PLAIT_WEIGHTS_SCORES,
         c.model.experts_scale = 2, c.model.experts_groups = 4,
         c.model.experts_top_groups = 2);
    CASE(CONFIG,
         "model.experts_balance_rate: model.experts_scores must be sigmoid, "
         "not softmax",
         c.model.experts_balance_rate = 0.001);
    CASE(CONFIG, "model.experts_groups: model.experts is 0, the model has none",
         c.model.experts = 0, c.model.experts_groups = 2);
    CASE(CONFIG,
         "model.experts_groups 3 must be at most 64 and divide model.experts 8 "
         "into groups of 2 or more",
         SIGMOID, c.model.experts_groups = 3);
    CASE(CONFIG,
         "model.experts_groups 8 must be at most 64 and divide model.experts 8 "
         "into groups of 2 or more",
         SIGMOID, c.model.experts_groups = 8);
    CASE(CONFIG,
         "model.experts_top_groups 3 must be from 1 to model.experts_groups 2",
         SIGMOID, c.model.experts_groups = 2, c.model.experts_top_groups = 3);
    CASE(CONFIG,
         "model.experts_top_groups 2: model.experts_groups is 0, tokens choose "
         "from all experts",
         SIGMOID, c.model.experts_top_groups = 2);
    CASE(CONFIG,
         "model.experts_top_k 3 is more than the 2 experts of "
         "model.experts_top_groups 1",
         SIGMOID, c.model.experts_top_k = 3, c.model.experts_groups = 4,
         c.model.experts_top_groups = 1);
    CASE(CONFIG, NULL, SIGMOID, c.model.experts_groups = 4,
         c.model.experts_top_groups = 2, c.model.experts_scale = 2.5);
    CASE(TRAINER, NULL, SIGMOID, c.model.experts_balance_rate = 0.001);
    CASE(TRAINER,
         "model.experts_balance_rate 0.001: parallel.grad_reduce must be fp32, "
         "not bf16, which rounds the counts of tokens",
         SIGMOID, c.model.experts_balance_rate = 0.001,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER, NULL, SIGMOID, c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER,
         "model.experts_scores sigmoid: sync.mode must be each, not local: "
         "the routers' biases are counted over all replicas in each step",
         SIGMOID, c.sync.mode = PLAIT_SYNC_LOCAL);
}

static void check_balance(void)
{
    CASE(CONFIG,
         "model.experts_balance_over: model.experts is 0, the model has none",
         c.model.experts = 0, BATCH);
    CASE(TRAINER, NULL, BATCH);
    CASE(TRAINER,
         "model.experts_balance_over batch: parallel.grad_reduce must be fp32, "
         "not bf16, which rounds the counts of tokens",
         BATCH, c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER, NULL, BATCH, c.model.experts_balance = 0,
         c.parallel.grad_reduce = PLAIT_GRAD_BF16);
    CASE(TRAINER,
         "model.experts_balance_over batch: sync.mode must be each, not local: "
         "tokens are counted over all replicas in each step",
         BATCH, c.sync.mode = PLAIT_SYNC_LOCAL);
}

int main(void)
{
    check_layers();
    check_scores();
    check_balance();
    return done_testing();
}
