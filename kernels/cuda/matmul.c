/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt. It counts columns first: a row-major [r,c] is
 * its c x r matrix with leading dimension c, so each product is stated
 * transposed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/matmul.h"

/* How many algorithms a search tries. */
#define CANDIDATES 8

static unsigned alignment(const struct operands *o)
{
    uintptr_t bits = (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->d |
                     (uintptr_t)o->bias | (uintptr_t)o->aux | 256;

    return (unsigned)(bits & -bits);
}

static cudaDataType_t data_type(enum plait_dtype type)
{
    return type == PLAIT_F32      ? CUDA_R_32F
           : type == PLAIT_BF16_T ? CUDA_R_16BF
                                  : CUDA_R_16F;
}

static cudaDataType_t operand_type(const struct product *k, bool b)
{
    if (k->fp8 == FP8_NONE)
        return data_type(k->in);
    return b && k->fp8 == FP8_B_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

static bool aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* -- planning ------------------------------------------------------------- */

static void matmul_free(struct cuda_matmul *p)
{
    if (p->a != NULL)
        cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != NULL)
        cublasLtMatrixLayoutDestroy(p->b);
    if (p->d != NULL)
        cublasLtMatrixLayoutDestroy(p->d);
    if (p->desc != NULL)
        cublasLtMatmulDescDestroy(p->desc);
    free(p);
}

void cuda_matmul_forget(struct plait_device *dev)
{
    while (dev->matmuls != NULL) {
        struct cuda_matmul *p = dev->matmuls;

        dev->matmuls = p->next;
        matmul_free(p);
    }
}

static cublasStatus_t set(cublasLtMatmulDesc_t desc,
                          cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes);
}

static cublasStatus_t describe(struct cuda_matmul *p)
{
    const struct product *k = &p->key;
    bool ta = k->op_a == CUBLAS_OP_T, tb = k->op_b == CUBLAS_OP_T;
    cudaDataType_t out = data_type(k->out);
    cublasStatus_t s;

    s = cublasLtMatmulDescCreate(
        &p->desc, k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &k->op_a,
                sizeof(k->op_a));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &k->op_b,
                sizeof(k->op_b));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue,
                sizeof(k->epilogue));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&p->a, operand_type(k, false),
                                       ta ? k->k : k->m, ta ? k->m : k->k,
                                       (int64_t)(ta ? k->k : k->m));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&p->b, operand_type(k, true),
                                       tb ? k->n : k->k, tb ? k->k : k->n,
                                       (int64_t)(tb ? k->n : k->k));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&p->d, out, k->m, k->n, (int64_t)k->m);
    return s;
}

/* The pointers of scales and epilogue, which each call has anew. */
static cublasStatus_t point(struct cuda_matmul *p, const struct operands *o)
{
    cudaDataType_t type = data_type(p->key.out);
    int64_t ld = (int64_t)p->key.m;
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    if (p->key.fp8 != FP8_NONE) {
        s = set(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o->a_scale,
                sizeof(o->a_scale));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o->b_scale,
                    sizeof(o->b_scale));
    }
    if (s == CUBLAS_STATUS_SUCCESS && o->bias != NULL) {
        s = set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                sizeof(type));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias,
                    sizeof(o->bias));
    }
    if (s == CUBLAS_STATUS_SUCCESS && o->aux != NULL) {
        s = set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux,
                    sizeof(o->aux));
    }
    return s;
}

/* The algorithms the library has for p, its favourite first; *found 0: none. */
static cublasStatus_t candidates(cublasLtHandle_t blas,
                                 const struct cuda_matmul *p,
                                 cublasLtMatmulHeuristicResult_t *list,
                                 int *found)
{
    static const cublasLtMatmulPreferenceAttributes_t align[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t pref;
    uint64_t workspace = WORKSPACE;
    uint32_t bytes = p->key.align;
    cublasStatus_t s;

    *found = 0;
    s = cublasLtMatmulPreferenceCreate(&pref);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    s = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
        sizeof(workspace));
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = cublasLtMatmulPreferenceSetAttribute(pref, align[i], &bytes,
                                                 sizeof(bytes));
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatmulAlgoGetHeuristic(blas, p->desc, p->a, p->b, p->d,
                                           p->d, pref, CANDIDATES, list, found);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED) {
            *found = 0;
            s = CUBLAS_STATUS_SUCCESS;
        }
    }
    cublasLtMatmulPreferenceDestroy(pref);
    return s;
}

/* Sets p->supported where the library has an algorithm. */
static cublasStatus_t choose(struct plait_queue *q, struct cuda_matmul *p,
                             const struct operands *o)
{
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    int found;
    cublasStatus_t s;

    p->supported = cuda_tune_find(q->dev, p);
    if (p->supported)
        return CUBLAS_STATUS_SUCCESS;
    s = candidates(q->dev->blas, p, list, &found);
    if (s != CUBLAS_STATUS_SUCCESS || found == 0)
        return s;
    p->supported = true;
    p->algo = list[0].algo;
    cuda_tune(q, p, o, list, found);
    return CUBLAS_STATUS_SUCCESS;
}

/* The plan for `key`, made if need be; the device's lock is held. */
static struct cuda_matmul *plan(struct plait_queue *q,
                                const struct product *key,
                                const struct operands *o,
                                cublasStatus_t *status)
{
    struct plait_device *dev = q->dev;
    struct cuda_matmul *p;

    *status = CUBLAS_STATUS_SUCCESS;
    for (p = dev->matmuls; p != NULL; p = p->next)
        if (memcmp(&p->key, key, sizeof(*key)) == 0)
            return p;
    p = calloc(1, sizeof(*p));
    if (p == NULL) {
        *status = CUBLAS_STATUS_ALLOC_FAILED;
        return NULL;
    }
    memcpy(&p->key, key, sizeof(*key));
    *status = describe(p);
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = point(p, o);
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = choose(q, p, o);
    if (*status != CUBLAS_STATUS_SUCCESS) {
        matmul_free(p);
        return NULL;
    }
    p->next = dev->matmuls;
    dev->matmuls = p;
    return p;
}

/* -- running -------------------------------------------------------------- */

cublasStatus_t cuda_matmul_run(struct plait_queue *q, struct cuda_matmul *p,
                               const struct operands *o, void *d,
                               const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1, zero = 0;
    cublasStatus_t s = point(p, o);

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    return cublasLtMatmul(q->dev->blas, p->desc, &one, o->a, p->a, o->b, p->b,
                          p->key.accumulate ? &one : &zero, d, p->d, d, p->d,
                          algo, o->workspace, WORKSPACE, q->stream);
}

int cuda_multiply(struct plait_queue *q, const char *op, struct product *key,
                  const struct operands *o)
{
    cublasStatus_t s;
    struct cuda_matmul *p;
    bool supported;

    key->align = alignment(o);
    key->tf32 = key->in == PLAIT_F32 && q->dev->tf32;
    pthread_mutex_lock(&q->dev->lock);
    p = plan(q, key, o, &s);
    supported = p != NULL && p->supported;
    if (supported)
        s = cuda_matmul_run(q, p, o, o->d, &p->algo);
    pthread_mutex_unlock(&q->dev->lock);
    if (s != CUBLAS_STATUS_SUCCESS)
        return plait_queue_fail(&q->head, EIO, "%s: cuBLASLt: %s", op,
                                cublasLtGetStatusString(s));
    return supported;
}

int cuda_multiply_plain(struct plait_queue *q, const char *op,
                        struct product *key, const struct operands *o)
{
    int done = cuda_multiply(q, op, key, o);

    if (done == 0)
        return plait_queue_fail(
            &q->head, ENOTSUP,
            "%s: cuBLASLt has no product of %zu x %zu x %zu in %s", op, key->m,
            key->n, key->k,
            key->fp8 != FP8_NONE      ? "fp8"
            : key->in == PLAIT_F32    ? "fp32"
            : key->in == PLAIT_BF16_T ? "bf16"
                                      : "fp16");
    return done > 0 ? 0 : -1;
}

struct product *cuda_product_init(struct product *key, cublasOperation_t op_a,
                                  cublasOperation_t op_b, enum plait_dtype type,
                                  size_t m, size_t n, size_t k)
{
    memset(key, 0, sizeof(*key));
    key->op_a = op_a;
    key->op_b = op_b;
    key->in = key->out = type;
    key->m = m;
    key->n = n;
    key->k = k;
    key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return key;
}

/* The library's GELU is left to the 16-bit types, where its approximation of
 * tanh is far below the rounding. It wants rows of whole 16 bytes. */
static bool gelu_fuses(enum plait_dtype type, const void *pre, size_t cols)
{
    return type != PLAIT_F32 && aligned16(pre) && cols % 8 == 0;
}

/* -- ops ------------------------------------------------------------------ */

static struct plait_weight *weight_create(struct plait_device *dev,
                                          enum plait_dtype type, size_t O,
                                          size_t C, const void *data)
{
    struct plait_weight *w = calloc(1, sizeof(*w));

    if (w == NULL)
        return NULL;
    w->dev = dev;
    w->type = type;
    w->O = O;
    w->C = C;
    w->data = data;
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

/* The product, then bias and activation in passes of their own. */
static int forward_unfused(struct plait_queue *q, struct product *key,
                           const struct operands *o, const void *bias,
                           bool gelu, void *pre)
{
    struct operands plain = *o;
    enum plait_dtype type = key->in;
    size_t n = key->m * key->n;

    if (gelu && pre != NULL)
        plain.d = pre;
    plain.bias = NULL;
    plain.aux = NULL;
    key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (cuda_multiply_plain(q, "linear_forward", key, &plain) != 0)
        return -1;
    if (bias != NULL)
        cuda_bias(q, type, plain.d, bias, key->n, key->m);
    if (gelu)
        cuda_gelu(q, type, o->d, plain.d, n);
    return 0;
}

static int linear_forward(struct plait_queue *q, void *out, void *pre,
                          const void *inp, struct plait_weight *w,
                          const void *bias, enum plait_activation act, size_t N)
{
    bool gelu = act == PLAIT_ACT_GELU;
    struct product key;
    struct operands o = {.a = w->data,
                         .b = inp,
                         .d = out,
                         .bias = bias,
                         .aux = gelu ? pre : NULL};
    int done = 0;

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, CUBLAS_OP_T, CUBLAS_OP_N, w->type, w->O, N, w->C);
    key.epilogue = forward_epilogue(bias != NULL, gelu, o.aux != NULL);
    if (aligned16(bias) && (!gelu || gelu_fuses(w->type, pre, w->O)))
        done = cuda_multiply(q, "linear_forward", &key, &o);
    if (done == 0)
        done = forward_unfused(q, &key, &o, bias, gelu, pre);
    if (done < 0)
        return -1;
    return cuda_leave(q, "linear_forward");
}

/* dinp = (+=) gelu'(pre) * (dout . w) where the library cannot fuse it. */
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
    cuda_gelu_gradient(q, key->in, o->d, plain.d, pre, accumulate, n);
    return 0;
}

static int linear_backward_input(struct plait_queue *q, void *dinp,
                                 const void *dout, struct plait_weight *w,
                                 enum plait_activation act, const void *pre,
                                 int accumulate, size_t N)
{
    bool gelu = act == PLAIT_ACT_GELU && pre != NULL;
    struct product key;
    struct operands o = {.a = w->data, .b = dout, .d = dinp};
    int done = 0;

    if (cuda_enter(q) != 0)
        return -1;
    if (N == 0)
        return 0;
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, CUBLAS_OP_N, CUBLAS_OP_N, w->type, w->C, N, w->O);
    key.accumulate = accumulate != 0;
    if (!gelu) {
        if (cuda_multiply_plain(q, "linear_backward_input", &key, &o) != 0)
            return -1;
        return cuda_leave(q, "linear_backward_input");
    }
    if (!accumulate && gelu_fuses(w->type, pre, w->C)) {
        key.epilogue = CUBLASLT_EPILOGUE_DGELU;
        memcpy(&o.aux, &pre, sizeof(pre)); /* only read */
        done = cuda_multiply(q, "linear_backward_input", &key, &o);
    }
    if (done == 0)
        done = backward_unfused(q, &key, &o, pre);
    if (done < 0)
        return -1;
    return cuda_leave(q, "linear_backward_input");
}

int cuda_clear_gradient(struct plait_queue *q, const char *op, float *dw,
                        float *dbias, size_t O, size_t C)
{
    cudaError_t rc = cudaSuccess;

    if (dw != NULL)
        rc = cudaMemsetAsync(dw, 0, O * C * sizeof(*dw), q->stream);
    if (rc == cudaSuccess && dbias != NULL)
        rc = cudaMemsetAsync(dbias, 0, O * sizeof(*dbias), q->stream);
    return cuda_check(q, op, rc);
}

static int linear_backward_weight(struct plait_queue *q, enum plait_dtype type,
                                  float *dw, float *dbias, const void *dout,
                                  const void *inp, int accumulate, size_t N,
                                  size_t O, size_t C)
{
    struct product key;
    struct operands o = {.a = inp, .b = dout, .d = dw};

    if (cuda_enter(q) != 0)
        return -1;
    if (!accumulate && cuda_clear_gradient(q, "linear_backward_weight",
                                           N ? NULL : dw, dbias, O, C) != 0)
        return -1;
    if (N == 0)
        return 0;
    if (dbias != NULL)
        cuda_column_sums(q, type, dbias, dout, N, O);
    o.workspace = cuda_scratch(q, WORKSPACE);
    if (o.workspace == NULL)
        return -1;
    cuda_product_init(&key, CUBLAS_OP_N, CUBLAS_OP_T, type, C, O, N);
    key.out = PLAIT_F32;
    key.accumulate = accumulate != 0;
    if (cuda_multiply_plain(q, "linear_backward_weight", &key, &o) != 0)
        return -1;
    return cuda_leave(q, "linear_backward_weight");
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
