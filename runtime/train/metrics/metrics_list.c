/* SPDX-License-Identifier: Apache-2.0 */
/* Each figure of a step's metrics with its name, once, for all that write
 * them. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "runtime/train/metrics/metrics.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static void each_scalar(const struct plait_metrics *m, plait_metric_fn *fn,
                        void *arg)
{
    const struct plait_metric list[] = {
        {"loss", "loss", "Training loss of the step.", m->loss, 0, 0},
        {"mtp_loss", "mtp_loss",
         "Training loss of the token after the next, with model.mtp_layers.",
         m->mtp_loss, 0, 0},
        {"loss_tokens", "loss_tokens",
         "Tokens of the step whose loss counts, where prompts are masked.",
         m->loss_tokens, 0, 0},
        {"val_loss", "validation_loss", "Validation loss.", m->val.loss, 0, 0},
        {"accuracy", "validation_accuracy_ratio",
         "Share of the validation images that are classified right.",
         m->val.accuracy, 0, 0},
        {"grad_norm", "gradient_norm", "Norm of the gradient before clipping.",
         m->grad_norm, 0, 0},
        {"max_logit", "attention_max_logit",
         "Largest attention logit of the step, with optim.qk_clip.",
         m->max_logit, 0, 0},
        {"lr", "learning_rate", "Learning rate of the step.", m->lr, 0, 0},
        {"noise_scale", "gradient_noise_scale_sequences",
         "Gradient noise scale, McCandlish et al., 2018.", m->seen.noise_scale,
         0, 0},
        {"loss_z", "loss_z_score", "Robust z-score of the loss.",
         m->seen.loss_z, 0, 0},
        {"grad_norm_z", "gradient_norm_z_score",
         "Robust z-score of the gradient norm.", m->seen.norm_z, 0, 0},
        {"outlier", "step_outlier", "1 where one of them is above 6.",
         m->seen.outlier ? 1 : NAN, 0, 0},
        {"skipped", "step_skipped", "1 where the update was left out.",
         m->skipped ? 1 : NAN, 0, 0},
        {"global_batch", "global_batch_sequences", "Sequences of the step.",
         m->batch, 0, 0},
        {"tokens", "tokens", "Tokens since the start of the run.", m->tokens, 0,
         0},
        {"tokens_per_s", "tokens_per_second", "Tokens per second, all ranks.",
         m->tokens_per_s, 0, 0},
        {"mfu", "mfu_ratio", "Model FLOPs over the peak.", m->mfu, 0, 0},
        {"mfu_causal", "mfu_causal_ratio",
         "MFU without the masked half of attention.", m->mfu_causal, 0, 0},
        {"step_s", "step_seconds", "Duration of the step.", m->step_s, 0, 0},
        {"mem_bytes", "memory_bytes", "The most that rank 0 has held.",
         m->mem_bytes, 0, 0},
        {"host_bytes", "host_memory_bytes", "The most that rank 0 offloaded.",
         m->host_bytes ? m->host_bytes : NAN, 0, 0},
        {"saved_step", "saved_step", "Step of the newest checkpoint.",
         m->saved_step < 0 ? NAN : m->saved_step, 0, 0},
        {"comm_s", "communication_exposed_seconds",
         "Part of the step in which rank 0 waited for messages.", m->comm_s, 0,
         0},
        {"comm_hidden_s", "communication_hidden_seconds",
         "Time of collectives beside computation.", m->comm_hidden_s, 0, 0},
    };

    for (int i = 0; i < COUNT(list); i++)
        if (!isnan(list[i].value))
            fn(&list[i], arg);
}

/* Where the time of the run goes. */
static void each_share(const struct plait_metrics *m, plait_metric_fn *fn,
                       void *arg)
{
    const struct plait_metric list[] = {
        {"save_s", "checkpoint_exposed_seconds",
         "What checkpoints held the training up since the step before.",
         m->save_s > 0 ? m->save_s : NAN, 0, 0},
        {"goodput", "goodput_ratio",
         "Share of the time since the first start that went into steps that "
         "count.",
         m->goodput, 0, 0},
        {"goodput_expected", "goodput_expected_ratio",
         "The same as failures, restarts and saves so far let expect.",
         m->goodput_expected, 0, 0},
    };

    for (int i = 0; i < COUNT(list); i++)
        if (!isnan(list[i].value))
            fn(&list[i], arg);
}

static void each_slowest(const struct plait_metrics *m, plait_metric_fn *fn,
                         void *arg)
{
    const struct plait_metric list[] = {
        {"slowest_rank", "slowest_rank", "The rank that computed longest.",
         m->slowest_rank, 0, 0},
        {"rank_s_min", "rank_computation_min_seconds",
         "Part of a step in which the quickest rank computed.", m->rank_s[0], 0,
         0},
        {"rank_s_median", "rank_computation_median_seconds",
         "The same of the median.", m->rank_s[2], 0, 0},
        {"rank_s_max", "rank_computation_max_seconds",
         "The same of the slowest.", m->rank_s[1], 0, 0},
    };

    for (int i = 0; m->slowest_rank >= 0 && i < COUNT(list); i++)
        fn(&list[i], arg);
}

static void each_val_set(const struct plait_metrics *m, plait_metric_fn *fn,
                         void *arg)
{
    struct plait_metric one = {.name = "val_loss_sets",
                               .open_name = "validation_set_loss",
                               .help = "Loss of each validation set.",
                               .label = "set"};

    if (!m->val.sets || isnan(m->val.loss))
        return;
    for (int i = 0; i < m->val.sets->n; i++) {
        one.key = m->val.sets->at[i].name;
        one.value = m->val.losses[i];
        fn(&one, arg);
    }
}

static void each_stage(const struct plait_metrics *m, plait_metric_fn *fn,
                       void *arg)
{
    char key[16];

    for (int i = 0; i < m->nstages; i++) {
        struct plait_metric one = {
            "mem_bytes_stages",
            "stage_memory_bytes",
            "What the fullest rank of a pipeline stage holds in a step.",
            m->stage_bytes[i],
            "stage",
            key};

        snprintf(key, sizeof(key), "%d", i);
        fn(&one, arg);
    }
}

static void each_group(const struct plait_metrics *m, plait_metric_fn *fn,
                       void *arg)
{
    struct plait_metric one = {.label = "group"};

    one.name = "comm_s_groups";
    one.open_name = "communication_group_exposed_seconds";
    one.help = "The same by group of ranks.";
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        one.key = plait_mesh_comm_names[i];
        one.value = m->comm_wait[i];
        if (one.value > 0)
            fn(&one, arg);
    }
    one.name = "comm_bytes";
    one.open_name = "communication_bytes";
    one.help = "What rank 0 sent over each group in the step.";
    for (int i = 0; i < PLAIT_NCOMMS; i++) {
        one.key = plait_mesh_comm_names[i];
        one.value = m->comm_bytes[i];
        if (one.value > 0)
            fn(&one, arg);
    }
}

void plait_metrics_each(const struct plait_metrics *m, plait_metric_fn *fn,
                        void *arg)
{
    each_scalar(m, fn, arg);
    each_share(m, fn, arg);
    each_slowest(m, fn, arg);
    each_val_set(m, fn, arg);
    each_stage(m, fn, arg);
    each_group(m, fn, arg);
}
