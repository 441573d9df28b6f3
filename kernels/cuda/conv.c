/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/image.h"
#include "kernels/cuda/matmul.h"

/* Convolutions as matrix products of patches (Chellapilla et al., 2006), for
 * those that cuDNN does not compute: what the kernel reads of the image for one
 * output pixel becomes a row. Patches are made for as many images at a time as
 * fit PATCH_BYTES. */

#define PATCH_BYTES ((size_t)256 << 20)

/* A run of images: as many as there is room for patches. */
struct run {
    struct plait_conv c; /* of those images alone */
    size_t rows;         /* of the output */
    float *patches;      /* NULL: the image is its own patches */
    void *workspace;
};

static bool is_product(const struct plait_conv *c)
{
    return c->kernel == 1 && c->stride == 1 && c->pad == 0;
}

/* 1: done by cuDNN; 0: to be done here; -1: the queue has failed. A 1 x 1
 * kernel needs no patches and is a plain matrix product. */
static int by_cudnn(struct plait_queue *q, enum cuda_conv_pass pass,
                    const struct plait_conv *c,
                    const struct plait_conv_arrays *a)
{
    return is_product(c) ? 0 : cuda_cudnn_conv(q, pass, c, a);
}

static size_t images_at_once(const struct plait_conv *c)
{
    size_t bytes =
        plait_conv_rows(c) / c->N * plait_conv_patch(c) * sizeof(float);
    size_t n = is_product(c) ? c->N : PATCH_BYTES / bytes;

    if (n < 1)
        return 1;
    return n < c->N ? n : c->N;
}

static int start_run(struct plait_queue *q, const struct plait_conv *c,
                     size_t n, struct run *r)
{
    size_t patch = plait_conv_patch(c);
    char *scratch;

    r->c = *c;
    r->c.N = n;
    r->rows = plait_conv_rows(&r->c);
    scratch = cuda_scratch(
        q, WORKSPACE + (is_product(c) ? 0 : r->rows * patch * sizeof(float)));
    if (scratch == NULL)
        return -1;
    r->workspace = scratch;
    r->patches = is_product(c) ? NULL : (float *)(scratch + WORKSPACE);
    return 0;
}

static const float *patches_of(struct plait_queue *q, const struct run *r,
                               const float *inp)
{
    if (r->patches == NULL)
        return inp;
    cuda_im2col(q, &r->c, r->patches, inp);
    return r->patches;
}

static int forward_run(struct plait_queue *q, const struct run *r,
                       const struct plait_conv_arrays *a)
{
    struct operands o = {.a = a->w,
                         .b = patches_of(q, r, a->inp),
                         .d = a->out,
                         .workspace = r->workspace};
    struct product key;

    cuda_product_init(&key, PLAIT_F32);
    key.op_a = CUBLAS_OP_T;
    key.m = r->c.O;
    key.n = r->rows;
    key.k = plait_conv_patch(&r->c);
    return cuda_multiply_plain(q, "conv_forward", &key, &o);
}

static int input_run(struct plait_queue *q, const struct run *r,
                     const struct plait_conv_arrays *a)
{
    struct operands o = {.a = a->w,
                         .b = a->dout,
                         .d = r->patches != NULL ? r->patches : a->dinp,
                         .workspace = r->workspace};
    struct product key;

    cuda_product_init(&key, PLAIT_F32);
    key.m = plait_conv_patch(&r->c);
    key.n = r->rows;
    key.k = r->c.O;
    if (cuda_multiply_plain(q, "conv_backward_input", &key, &o) != 0)
        return -1;
    if (r->patches != NULL)
        cuda_col2im(q, &r->c, a->dinp, r->patches);
    return 0;
}

static int weight_run(struct plait_queue *q, const struct run *r,
                      const struct plait_conv_arrays *a)
{
    struct operands o = {.a = patches_of(q, r, a->inp),
                         .b = a->dout,
                         .d = a->dw,
                         .workspace = r->workspace};
    struct product key;

    cuda_product_init(&key, PLAIT_F32);
    key.op_b = CUBLAS_OP_T;
    key.m = plait_conv_patch(&r->c);
    key.n = r->c.O;
    key.k = r->rows;
    key.accumulate = a->accumulate;
    return cuda_multiply_plain(q, "conv_backward_weight", &key, &o);
}

/* Calls `one` for runs of images, each with the arrays from its first image
 * on; the second and later ones add to dw. */
static int each_run(struct plait_queue *q, const struct plait_conv *c,
                    const struct plait_conv_arrays *a,
                    int (*one)(struct plait_queue *q, const struct run *r,
                               const struct plait_conv_arrays *a))
{
    size_t image = c->H * c->W * c->C,
           result = plait_conv_rows(c) / c->N * c->O;
    size_t most = images_at_once(c);
    struct run r;

    for (size_t i = 0; i < c->N; i += r.c.N) {
        struct plait_conv_arrays part = *a;

        part.inp = a->inp != NULL ? a->inp + i * image : NULL;
        part.dout = a->dout != NULL ? a->dout + i * result : NULL;
        part.out = a->out != NULL ? a->out + i * result : NULL;
        part.dinp = a->dinp != NULL ? a->dinp + i * image : NULL;
        part.accumulate = a->accumulate || i > 0;
        if (start_run(q, c, most < c->N - i ? most : c->N - i, &r) < 0 ||
            one(q, &r, &part) < 0)
            return -1;
    }
    return 0;
}

static int conv_forward(struct plait_queue *q, const struct plait_conv *c,
                        const struct plait_conv_arrays *a)
{
    int rc;

    if (cuda_enter(q) != 0)
        return -1;
    rc = by_cudnn(q, CUDA_CONV_FORWARD, c, a);
    if (rc == 0)
        rc = each_run(q, c, a, forward_run);
    return rc < 0 ? -1 : cuda_leave(q, "conv_forward");
}

static int conv_backward_input(struct plait_queue *q,
                               const struct plait_conv *c,
                               const struct plait_conv_arrays *a)
{
    int rc;

    if (cuda_enter(q) != 0)
        return -1;
    rc = by_cudnn(q, CUDA_CONV_INPUT, c, a);
    if (rc == 0)
        rc = each_run(q, c, a, input_run);
    return rc < 0 ? -1 : cuda_leave(q, "conv_backward_input");
}

static int conv_backward_weight(struct plait_queue *q,
                                const struct plait_conv *c,
                                const struct plait_conv_arrays *a)
{
    int rc;

    if (cuda_enter(q) != 0)
        return -1;
    rc = by_cudnn(q, CUDA_CONV_WEIGHT, c, a);
    if (rc == 0)
        rc = each_run(q, c, a, weight_run);
    return rc < 0 ? -1 : cuda_leave(q, "conv_backward_weight");
}

/* Filled once, together with the table that points to it. */
static struct plait_image_ops image_table;

void cuda_image_ops(struct plait_ops *ops)
{
    image_table.conv_forward = conv_forward;
    image_table.conv_backward_input = conv_backward_input;
    image_table.conv_backward_weight = conv_backward_weight;
    cuda_batchnorm_ops(&image_table);
    cuda_pool_ops(&image_table);
    ops->image = &image_table;
}
