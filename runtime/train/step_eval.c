/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "kernels/kernels.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/step_private.h"

/* The evaluation of the model on the validation sets. */

/* Run the batches of an evaluation, and add up in *count the targets that
 * count. If one rank cannot read a file, all ranks end the evaluation. */
static int eval_batches(struct plait_trainer *t, struct plait_loader *loader,
                        int n, double *count, struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    double tokens = (double)c->train.global_batch * c->model.seq_len;
    struct plait_comm *world = t->mesh->world;

    for (int64_t i = 0; i < c->train.eval_steps; i++) {
        int rc = plait_trainer_batch(t, loader, n, 1 / tokens, err);

        if (plait_error_consensus(world, rc, err) < 0)
            return plait_comm_failed(world) ? -1 : PLAIT_TRAINER_LOST;
        if (plait_pipeline_eval(t->pipe, t->batch, n, t->loss) < 0)
            return plait_trainer_describe(t, err);
        *count += plait_trainer_count(t, t->batch, n);
    }
    return 0;
}

/* The sums of loss, images right and targets that count over validation set
 * `set`, of all ranks. */
static int evaluate_set(struct plait_trainer *t, int set, double sums[3],
                        struct plait_error *err)
{
    struct plait_mesh *mesh = t->mesh;
    int n = t->config->train.global_batch / plait_trainer_batch_unit(t), rc;
    struct plait_loader *loader = plait_trainer_val_loader(t, set, n, err);
    double count = 0;

    if (plait_error_consensus(mesh->world, loader ? 0 : -1, err) < 0) {
        plait_loader_destroy(loader);
        return PLAIT_TRAINER_LOST;
    }
    rc = mesh->ops->fill_zero(mesh->q, t->loss, 2 * sizeof(*t->loss)) < 0
             ? plait_trainer_describe(t, err)
             : eval_batches(t, loader, n, &count, err);
    plait_loader_destroy(loader);
    if (rc < 0)
        return rc;
    if (plait_trainer_local_sums(t, sums, 2) < 0)
        return plait_trainer_describe(t, err);
    sums[2] = plait_trainer_counts(t) ? count : 0;
    if (plait_comm_host_all_reduce(mesh->world, sums, 3, PLAIT_SUM) < 0)
        return plait_errorf(err, "%s", plait_comm_error(mesh->world));
    return 0;
}

/* All of them, one after the other. */
static int evaluate_sets(struct plait_trainer *t, struct plait_evaluation *e,
                         struct plait_error *err)
{
    const struct plait_job_config *c = t->config;
    double sums[3];
    int rc;

    for (int i = 0; i < c->data.val.n; i++) {
        rc = evaluate_set(t, i, sums, err);
        if (rc < 0)
            return rc;
        t->val_losses[i] = sums[0] / sums[2];
        e->loss += t->val_losses[i] / c->data.val.n;
        if (plait_is_image_model(&c->model) && c->model.classes > 1)
            e->accuracy = sums[1] / sums[2];
    }
    return 0;
}

int plait_trainer_eval(struct plait_trainer *t, struct plait_evaluation *result,
                       struct plait_error *err)
{
    struct plait_evaluation e = {.accuracy = NAN, .losses = t->val_losses};
    int rc;

    if (t->config->data.val.at[0].name)
        e.sets = &t->config->data.val;
    if (t->replicas && plait_replicas_lend(t->replicas) < 0)
        return plait_trainer_describe(t, err);
    if (plait_optim_lend(t->optim, err) < 0)
        return -1;
    rc = evaluate_sets(t, &e, err);
    if (rc == -1 || plait_optim_return(t->optim, err) < 0)
        return -1;
    if (t->replicas && plait_replicas_return(t->replicas) < 0)
        return plait_trainer_describe(t, err);
    if (rc == 0)
        *result = e;
    return rc;
}
