/* SPDX-License-Identifier: Apache-2.0 */
/* Whether Plait's kernels have room on a GPU: what they need of a block's
 * shared memory. */
#include <errno.h>
#include <math.h>

#include "topology/job/fits.h"
#include "topology/job/gpu_types.h"
#include "topology/job/model_size.h"

/* The most shared memory that a block can have, in bytes: NVIDIA's "CUDA C++
 * Programming Guide", technical specifications per compute capability. 0: not
 * known, as of GPUs that are newer than this table; nothing is refused then. */
static int shared_memory(int sm)
{
    switch (sm) {
    case 80:
    case 87:
        return 163 << 10;
    case 90:
    case 100:
    case 103:
        return 227 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    default:
        return 0;
    }
}

/* kernels/attention.h: PLAIT_ATTENTION_HEAD_MOST */
#define HEAD_MOST 256

/* Bytes that a block of Plait's own attention needs for heads that have no
 * kernels on tensor cores (kernels/attention.h: plait_attention_bytes()). */
static int attention_bytes(int head, bool backward)
{
    int tiles = backward ? 4 : 3, squares = backward ? 2 : 1;

    return 4 * 32 * (tiles * (head + 1) + squares * (32 + 1));
}

/* The largest head that fits. */
static int largest_head(int room, bool backward)
{
    int head = HEAD_MOST;

    while (head > 0 && attention_bytes(head, backward) > room)
        head--;
    return head;
}

/* Columns of the widest norm: of a layer, or of all heads' queries where they
 * have one together and no other rank has a part of them. */
static double norm_width(const struct plait_job_config *c)
{
    const struct plait_model_config *m = &c->model;
    double heads = (double)m->heads * plait_model_head_dim(m);

    bool whole = m->qk_norm && m->qk_norm_whole &&
                 c->parallel.layout.size[PLAIT_TP] == 1;

    return fmax(fmax(m->hidden, whole ? heads : 0), fmax(m->mla_q, m->mla_kv));
}

/* Bytes of a norm's backward, which sums the gradients of its weights there
 * (kernels/norm.h). */
static double norm_bytes(const struct plait_job_config *c)
{
    return (c->model.family == PLAIT_LLAMA ? 4.0 : 8.0) * norm_width(c) + 256;
}

static bool is_training(const struct plait_gpu_use *use)
{
    return use->work == PLAIT_WORK_TRAIN;
}

/* Why own kernels compute attention: of training, its backward, which needs
 * more than the forward. NULL: they do not. First what no setting changes. Only
 * training masks documents and drops. */
static const char *why_own(const struct plait_job_config *c,
                           const struct plait_gpu_use *use)
{
    int head = plait_model_head_dim(&c->model);
    struct plait_job_config whole = *c;
    const char *own;

    if (is_training(use) && head >= PLAIT_WIDE_HEAD && use->sm / 10 != 9)
        return "cuDNN has none for heads above 128 on this GPU";
    whole.data.mask_documents &= is_training(use);
    if (!is_training(use))
        whole.model.attention_dropout = 0;
    own = plait_model_own_attention(&whole);
    if (own)
        return own;
    if (!use->cudnn)
        return "no cuDNN";
    return use->work == PLAIT_WORK_EXTEND ? "texts grow" : NULL;
}

/* Heads of 64 and 128 in 16 bits have kernels on tensor cores, which fit. */
static int check_attention(const struct plait_job_config *c,
                           const struct plait_gpu_use *use,
                           struct plait_error *err)
{
    int head = plait_model_head_dim(&c->model), room = shared_memory(use->sm);
    int need = attention_bytes(head, is_training(use));
    const char *own = why_own(c, use);

    if (!own)
        return 0;
    if (head > HEAD_MOST)
        return plait_errorf(err,
                            "heads of %d: attention on GPUs has kernels for "
                            "heads of %d at most",
                            head, HEAD_MOST);
    if (!room || need <= room)
        return 0;
    return plait_errorf(
        err,
        "heads of %d: %sPlait's own kernels compute attention's %s (%s), which "
        "needs %d bytes of shared memory; GPUs of compute capability %d.%d "
        "have %d, enough for heads of %d",
        head, is_training(use) ? "to train, " : "",
        is_training(use) ? "backward" : "forward", own, need, use->sm / 10,
        use->sm % 10, room, largest_head(room, is_training(use)));
}

static int check_norms(const struct plait_job_config *c,
                       const struct plait_gpu_use *use, struct plait_error *err)
{
    int room = shared_memory(use->sm);
    double need = norm_bytes(c);
    bool latent = c->model.mla_kv > 0;
    bool wide = norm_width(c) > c->model.hidden;

    if (!is_training(use) || !room || need <= room)
        return 0;
    return plait_errorf(
        err,
        "%s %.0f: to train, the backward of %s needs %.0f bytes of "
        "shared memory; GPUs of compute capability %d.%d have %d",
        !wide    ? "model.hidden"
        : latent ? "model.mla: columns of q, or of k and v,"
                 : "model.qk_norm_whole: columns of queries,",
        norm_width(c), wide ? "their norm" : "its norms", need, use->sm / 10,
        use->sm % 10, room);
}

int plait_fits_gpu(const struct plait_job_config *c,
                   const struct plait_gpu_use *use, struct plait_error *err)
{
    errno = EINVAL;
    if (plait_is_image_model(&c->model))
        return 0;
    return check_norms(c, use, err) < 0 ? -1 : check_attention(c, use, err);
}

/* m4/plait.m4 compiles for these and later ones. */
#define FIRST_SM 80

int plait_fits_trainer_on(const struct plait_job_config *c,
                          const struct plait_gpu_type *gpu,
                          struct plait_error *err)
{
    const struct plait_gpu_use use = {gpu->sm, true, PLAIT_WORK_TRAIN};

    if (c->framework != PLAIT_FRAMEWORK_PLAIT)
        return 0;
    if (plait_fits_trainer(c, err) < 0)
        return -1;
    return gpu->sm < FIRST_SM ? 0 : plait_fits_gpu(c, &use, err);
}
