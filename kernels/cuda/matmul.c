/* SPDX-License-Identifier: Apache-2.0 */
/* The three products of a linear layer. cuBLASLt's matrices are column-major: a
 * row-major [r,c] is a c x r matrix with leading dimension c, so that each
 * product is described transposed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/matmul.h"

static bool aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* The library's GELU is used only for 16-bit types, where the error of its tanh
 * is far below the rounding. It needs rows that are multiples of 16 bytes. */
static bool gelu_fuses(enum plait_dtype type, const void *pre, size_t cols)
{
    return type != PLAIT_F32 && aligned16(pre) && cols % 8 == 0;
}

/* -- ops ------------------------------------------------------------------ */

static struct plait_weight *weight_create(struct plait_device *dev,
                                          const struct plait_weight_data *d)
{
    struct plait_weight *w = calloc(1, sizeof(*w));

    if (w == NULL)
        return NULL;
    w->dev = dev;
    w->type = d->type;
    w->O = d->O;
    w->C = d->C;
    w->data = d->data;
    return w;
}

static void weight_destroy(struct plait_weight *w)
{
    int saved = errno;

    if (w != NULL)
        cuda_free(w->dev, w->codes);
    free(w);
    errno = saved;
}

static void weight_changed(struct plait_weight *w, const void *data)
{
    w->data = data;
    w->rounded = false;
}

static cublasLtEpilogue_t forward_epilogue(bool bias, bool gelu, bool aux)
{
    if (gelu && aux)
        return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                    : CUBLASLT_EPILOGUE_GELU_AUX;
    if (gelu)
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The product, then bias and activation in separate passes. */
static int forward_unfused(struct plait_queue *q, struct product *key,
                           const struct operands *o,
                           const struct plait_linear *l)
{
    struct operands plain = *o;
    enum plait_dtype type = key->in;
    bool gelu = l->act == PLAIT_ACT_GELU;
    size_t n = key->m * key->n;

    if (gelu && l->pre != NULL)
        plain.d = l->pre;
    plain.bias = NULL;
    plain.aux = NULL;
    key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (cuda_multiply_plain(q, "linear_forward", key, &plain) != 0)
        return -1;
    if (l->bias != NULL)
        cuda_bias(q, type, plain.d, l->bias, key->n, key->m);
    if (gelu)
        cuda_gelu(q, type, o->d, plain.d, n);
    return 0;
}

static int linear_forward(struct plait_queue *q, const struct plait_linear *l)
{
    const struct plait_weight *w = l->w;
    bool gelu = l->act == PLAIT_ACT_GELU;
    struct product key;
    struct operands o = {.a = w->data,
                         .b = l->inp.x,
                         .d = l->out,
                         .bias = l->bias,
                         .aux = gelu ? l->pre : NULL};
    int done = 0;

    if (cuda_enter(q) != 0)
        return -1;
    if (l->N == 0)
        return 0;
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, w->type);
    key.op_a = CUBLAS_OP_T;
    key.m = w->O;
    key.n = l->N;
    key.k = w->C;
    key.forward = 1;
    key.epilogue = forward_epilogue(l->bias != NULL, gelu, o.aux != NULL);
    if (aligned16(l->bias) && (!gelu || gelu_fuses(w->type, l->pre, w->O)))
        done = cuda_multiply(q, "linear_forward", &key, &o);
    if (done == 0)
        done = forward_unfused(q, &key, &o, l);
    if (done < 0)
        return -1;
    return cuda_leave(q, "linear_forward");
}

/* dinp = (+=) gelu'(pre) * (dout . w) if the library cannot fuse it. */
static int backward_unfused(struct plait_queue *q, struct product *key,
                            const struct operands *o, const void *pre)
{
    struct operands plain = *o;
    int accumulate = key->accumulate;
    size_t n = key->m * key->n;

    plain.aux = NULL;
    key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (accumulate) {
        char *scratch = cuda_scratch(q, WORKSPACE + n * 4);

        if (scratch == NULL)
            return -1;
        plain.workspace = scratch;
        plain.d = scratch + WORKSPACE;
        key->accumulate = 0;
    }
    if (cuda_multiply_plain(q, "linear_backward_input", key, &plain) != 0)
        return -1;
    cuda_gelu_gradient(
        q,
        &(struct plait_gelu_backward){
            .type = key->in, .dinp = o->d, .dout = plain.d, .inp = pre, .n = n},
        accumulate);
    return 0;
}

static int linear_backward_input(struct plait_queue *q,
                                 const struct plait_linear_dinp *l)
{
    static const char op[] = "linear_backward_input";
    const struct plait_weight *w = l->w;
    bool gelu = l->act == PLAIT_ACT_GELU && l->pre != NULL;
    struct product key;
    struct operands o = {.a = w->data, .b = l->dout.x, .d = l->dinp};
    int done = 0;

    if (cuda_enter(q) != 0)
        return -1;
    if (l->N == 0)
        return 0;
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, w->type);
    key.m = w->C;
    key.n = l->N;
    key.k = w->O;
    key.accumulate = l->accumulate != 0;
    if (!gelu)
        return cuda_multiply_plain(q, op, &key, &o) != 0 ? -1
                                                         : cuda_leave(q, op);
    if (!l->accumulate && gelu_fuses(w->type, l->pre, w->C)) {
        key.epilogue = CUBLASLT_EPILOGUE_DGELU;
        memcpy(&o.aux, &l->pre, sizeof(l->pre)); /* without const; only read */
        done = cuda_multiply(q, op, &key, &o);
    }
    if (done == 0)
        done = backward_unfused(q, &key, &o, l->pre);
    if (done < 0)
        return -1;
    return cuda_leave(q, op);
}

static int clear_gradient(struct plait_queue *q, const char *op,
                          const struct plait_linear_dw *l)
{
    cudaError_t rc = cudaSuccess;

    if (l->N == 0)
        rc = cudaMemsetAsync(l->dw, 0, l->O * l->C * sizeof(*l->dw), q->stream);
    if (rc == cudaSuccess && l->dbias != NULL)
        rc = cudaMemsetAsync(l->dbias, 0, l->O * sizeof(*l->dbias), q->stream);
    return cuda_check(q, op, rc);
}

/* Sums dout by a pass of its own: the product that sums it, too (BGRADB), takes
 * as long as both or longer, see docs/measured-gpu.md. */
int cuda_begin_gradient(struct plait_queue *q, const char *op,
                        const struct plait_linear_dw *l)
{
    if (!l->accumulate && clear_gradient(q, op, l) != 0)
        return -1;
    if (l->dbias != NULL)
        cuda_column_sums(q, l->type, l->dbias, l->dout.x, l->N, l->O);
    return 0;
}

static int linear_backward_weight(struct plait_queue *q,
                                  const struct plait_linear_dw *l)
{
    static const char op[] = "linear_backward_weight";
    struct product key;
    struct operands o = {.a = l->inp.x, .b = l->dout.x, .d = l->dw};

    if (cuda_enter(q) != 0)
        return -1;
    if (cuda_begin_gradient(q, op, l) != 0)
        return -1;
    if (l->N == 0)
        return 0;
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, l->type);
    key.op_b = CUBLAS_OP_T;
    key.out = PLAIT_F32;
    key.m = l->C;
    key.n = l->O;
    key.k = l->N;
    key.accumulate = l->accumulate != 0;
    if (cuda_multiply_plain(q, op, &key, &o) != 0)
        return -1;
    return cuda_leave(q, op);
}

void cuda_matmul_ops(struct plait_ops *ops)
{
    ops->weight_create = weight_create;
    ops->weight_destroy = weight_destroy;
    ops->weight_changed = weight_changed;
    ops->linear_forward = linear_forward;
    ops->linear_backward_input = linear_backward_input;
    ops->linear_backward_weight = linear_backward_weight;
}
