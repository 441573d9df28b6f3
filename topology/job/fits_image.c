/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/fits_image.h"

#include <errno.h>

#include "topology/job/stage.h"

static int check_model(const struct plait_model_config *m,
                       struct plait_error *err)
{
    if (m->input.n != 0 && m->input.n != 3)
        return plait_errorf(err,
                            "model.input has %d numbers; it is [channels, "
                            "height, width]",
                            m->input.n);
    if (m->family == PLAIT_RESNET && m->depth != 50 &&
        (m->depth < 8 || m->depth % 6 != 2))
        return plait_errorf(err,
                            "model.depth %d must be 50 or 6 n + 2: 8, 14, "
                            "20, 26, 32, ...",
                            m->depth);
    if (m->experts)
        return plait_errorf(err, "model.experts: an image model has none");
    if (m->mtp_layers)
        return plait_errorf(err, "model.mtp_layers: an image model predicts "
                                 "no tokens");
    if (m->classes == 1 && m->loss != PLAIT_LOSS_SQUARED)
        return plait_errorf(err, "model.classes 1: model.loss must be "
                                 "squared; a single class leaves nothing to "
                                 "choose");
    if (m->loss == PLAIT_LOSS_SQUARED && m->label_smoothing > 0)
        return plait_errorf(err,
                            "model.label_smoothing %g: model.loss must be "
                            "cross-entropy, not squared",
                            m->label_smoothing);
    return 0;
}

static int check_norm(const struct plait_job_config *c, struct plait_error *err)
{
    const struct plait_model_config *m = &c->model;

    if (m->family != PLAIT_RESNET)
        return 0;
    if (m->norm == PLAIT_NORM_GHOST && c->train.micro_batch % m->ghost_batch)
        return plait_errorf(err,
                            "train.micro_batch %d is not divisible by "
                            "model.ghost_batch %d",
                            c->train.micro_batch, m->ghost_batch);
    if (m->norm == PLAIT_NORM_SYNC && plait_sync_parts(&c->sync))
        return plait_errorf(err,
                            "model.norm sync: sync.mode must be each, not "
                            "%s, whose replicas train apart",
                            plait_sync_mode_names[c->sync.mode]);
    if (c->sync.mode == PLAIT_SYNC_DILOCO)
        return plait_errorf(err, "sync.mode diloco: its outer momentum would "
                                 "drive a resnet's running variances below "
                                 "zero");
    if (c->parallel.grad_reduce == PLAIT_GRAD_BF16)
        return plait_errorf(err, "parallel.grad_reduce bf16: a resnet's "
                                 "running statistics travel with the "
                                 "gradients and need fp32");
    return 0;
}

int plait_fits_image(const struct plait_job_config *c, struct plait_error *err)
{
    errno = EINVAL;
    if (check_model(&c->model, err) < 0 || check_norm(c, err) < 0)
        return -1;
    if (c->data.train.n > 1 || c->data.val.n > 1)
        return plait_errorf(err,
                            "data.%s: an image model reads one dataset, "
                            "not %d",
                            c->data.train.n > 1 ? "train" : "val",
                            c->data.train.n > 1 ? c->data.train.n
                                                : c->data.val.n);
    if (c->data.mask_documents)
        return plait_errorf(err, "data.mask_documents: images are not "
                                 "documents");
    if (c->model.dropout > 0 || c->model.attention_dropout > 0)
        return plait_errorf(err, "model.%s: an image model has no dropout",
                            c->model.dropout > 0 ? "dropout"
                                                 : "attention_dropout");
    if (c->train.precision != PLAIT_FP32 && c->train.precision != PLAIT_TF32)
        return plait_errorf(err, "train.precision: an image model computes in "
                                 "fp32 or tf32");
    if (c->parallel.recompute != PLAIT_RECOMPUTE_NONE)
        return plait_errorf(err, "parallel.recompute: an image model keeps "
                                 "its activations; it must be none");
    if (c->parallel.offload != PLAIT_OFFLOAD_NONE)
        return plait_errorf(err, "parallel.offload: an image model stays on "
                                 "its device; it must be none");
    if (c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1)
        return plait_errorf(err, "parallel.schedule zb-h1: an image model "
                                 "does not split its backward pass");
    return 0;
}

int plait_fits_image_layout(const struct plait_job_config *c,
                            const struct plait_layout *layout,
                            struct plait_error *err)
{
    static const enum plait_axis refused[] = {PLAIT_TP, PLAIT_CP, PLAIT_EP};
    int64_t stages =
        (int64_t)layout->size[PLAIT_PP] * plait_model_chunks(&c->parallel);

    errno = EINVAL;
    for (int i = 0; i < 3; i++)
        if (layout->size[refused[i]] > 1)
            return plait_errorf(err,
                                "%s %d: an image model is split over dp and "
                                "pp alone",
                                plait_axis_names[refused[i]],
                                layout->size[refused[i]]);
    if (stages > 1 && c->model.layers < stages)
        return plait_errorf(
            err, "%s %d: fewer than pp %d * parallel.virtual %d",
            c->model.family == PLAIT_MLP ? "model.layers"
                                         : "residual blocks of the resnet:",
            c->model.layers, layout->size[PLAIT_PP],
            plait_model_chunks(&c->parallel));
    return 0;
}
