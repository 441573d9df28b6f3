/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution, or one of its gradients, as a single cuDNN operation; images
 * and kernels are stored channels last, in fp32. */
#include "config.h"

#ifdef HAVE_CUDNN

#include "kernels/cuda/cudnn.h"

/* An engine's workspace may have as many bytes as the patches without cuDNN. */
#define WORKSPACE_MOST ((int64_t)256 << 20)

/* The names that an operation and its attributes have in each pass. */
static const struct pass {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, how, image, weight, result;
} passes[] = {
    [CUDA_CONV_FORWARD] =
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [CUDA_CONV_INPUT] =
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [CUDA_CONV_WEIGHT] =
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

/* n images [rows, columns, channels]; cuDNN lists the dimensions in another
 * order. */
static desc channels_last(struct build *b, int64_t id, size_t n, size_t rows,
                          size_t columns, size_t channels)
{
    int64_t H = (int64_t)rows, W = (int64_t)columns, C = (int64_t)channels;
    struct tensor t = {.id = id,
                       .type = CUDNN_DATA_FLOAT,
                       .size = {(int64_t)n, C, H, W},
                       .stride = {H * W * C, 1, W * C, C}};

    return cudnn_tensor(b, &t);
}

static desc convolution(struct build *b, const struct plait_conv *c)
{
    const char *what = "convolution";
    int64_t dims = 2, pad[2] = {c->pad, c->pad}, ones[2] = {1, 1};
    int64_t stride[2] = {c->stride, c->stride};
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    desc d = cudnn_make(b, what, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
              CUDNN_TYPE_DATA_TYPE, 1, &type);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
              CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
              1, &dims);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64,
              2, pad);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
              CUDNN_TYPE_INT64, 2, pad);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
              CUDNN_TYPE_INT64, 2, stride);
    cudnn_set(b, what, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2,
              ones);
    return cudnn_finish(b, what, d);
}

/* Results must have the same bits in each run and fp32's rounding, as those of
 * the products of patches. So the only note allowed, apart from NaN
 * propagation, is tensor cores, and that only if fp32 products may use TF32. */
static void limit_engines(struct build *b, const struct conv_shape *s)
{
    b->alignment = s->alignment;
    b->notes = 1u << CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
    if (s->tf32)
        b->notes |= 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    b->most_workspace = WORKSPACE_MOST;
    b->fallback = true;
}

void cudnn_state_conv(struct build *b)
{
    const char *what = "operation";
    const struct conv_shape *s = &b->p->key.conv;
    const struct plait_conv *c = &s->c;
    const struct pass *pass = &passes[s->pass];
    size_t H = plait_conv_side(c, c->H), W = plait_conv_side(c, c->W);
    size_t k = (size_t)c->kernel;
    float alpha = 1, beta = 0;
    desc d;

    limit_engines(b, s);
    d = cudnn_make(b, what, pass->type);
    cudnn_set_desc(b, what, d, pass->how, convolution(b, c));
    cudnn_set_desc(b, what, d, pass->image,
                   channels_last(b, ID_IMAGE, c->N, c->H, c->W, c->C));
    cudnn_set_desc(b, what, d, pass->weight,
                   channels_last(b, ID_WEIGHT, c->O, k, k, c->C));
    cudnn_set_desc(b, what, d, pass->result,
                   channels_last(b, ID_RESULT, c->N, H, W, c->O));
    cudnn_set(b, what, d, pass->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    cudnn_set(b, what, d, pass->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    cudnn_add(b, what, d);
}

#endif
