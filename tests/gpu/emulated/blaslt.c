/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's matrix products as plain sums, with the conditions that cuBLASLt
 * has for its arguments. Matrices are column-major. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blaslt.h"
#include "kernels/dtype.h"
#include "machine.h"
#include "runtime.h"

/* The arguments of a product on a stream. */
struct work {
    struct emu_product how;
    struct emu_matrix is[3]; /* A, B, D */
    const void *a, *b;
    void *d;
    float alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

/* -- elements ----------------------------------------------------------------
 */

static size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_32F                          ? 4
           : type == CUDA_R_16F || type == CUDA_R_16BF ? 2
                                                       : 1;
}

static float get(cudaDataType_t type, const void *p, size_t i)
{
    switch (type) {
    case CUDA_R_32F:
        return ((const float *)p)[i];
    case CUDA_R_16BF:
        return plait_f32_of_bf16(((const uint16_t *)p)[i]);
    case CUDA_R_16F:
        return plait_f32_of_fp16(((const uint16_t *)p)[i]);
    case CUDA_R_8F_E4M3:
        return plait_f32_of_fp8(((const uint8_t *)p)[i], PLAIT_E4M3);
    default:
        return plait_f32_of_fp8(((const uint8_t *)p)[i], PLAIT_E5M2);
    }
}

static void put(cudaDataType_t type, void *p, size_t i, float x)
{
    if (type == CUDA_R_32F)
        ((float *)p)[i] = x;
    else if (type == CUDA_R_16BF)
        ((uint16_t *)p)[i] = plait_bf16_of_f32(x);
    else
        ((uint16_t *)p)[i] = plait_fp16_of_f32(x);
}

static size_t bytes_of(const struct emu_matrix *m)
{
    return ((m->cols - 1) * m->ld + m->rows) * size_of(m->type);
}

/* Returns op(matrix) as [k, lines] doubles with lines running fastest. */
static double *widen(const struct emu_matrix *m, const void *p, bool by_rows,
                     size_t *lines, size_t *k)
{
    double *x = malloc(m->rows * m->cols * sizeof(*x));

    if (x == NULL)
        abort();
    *lines = by_rows ? m->rows : m->cols;
    *k = by_rows ? m->cols : m->rows;
    for (size_t c = 0; c < m->cols; c++)
        for (size_t r = 0; r < m->rows; r++)
            x[by_rows ? c * m->rows + r : r * m->cols + c] =
                get(m->type, p, c * m->ld + r);
    return x;
}

/* -- epilogues
 * ------------------------------------------------------------------ */

static float gelu(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);

    return 0.5f * x * (1 + tanhf(u));
}

static float gelu_slope(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    float t = tanhf(u);

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608028654f *
                                (1 + 3 * 0.044715f * x * x);
}

static bool has_bias(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_GELU_AUX ||
           e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU;
}

static float finish(const struct work *w, float x, size_t row, size_t col)
{
    const struct emu_product *h = &w->how;
    cudaDataType_t type = w->is[2].type;
    size_t at = col * (size_t)h->aux_ld + row;

    if (has_bias(h->epilogue))
        x += get(h->bias_type, h->bias, row);
    if (h->epilogue == CUBLASLT_EPILOGUE_DGELU)
        return x * gelu_slope(get(type, h->aux, at));
    if (has_aux(h->epilogue))
        put(type, h->aux, at, x);
    return h->epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                   h->epilogue == CUBLASLT_EPILOGUE_BIAS
               ? x
               : gelu(x);
}

/* -- the product
 * ------------------------------------------------------------------- */

static bool check_memory(const struct work *w)
{
    const struct emu_product *h = &w->how;
    size_t m = w->is[2].rows, n = w->is[2].cols;
    size_t size = size_of(w->is[2].type);

    if (!emu_memory_filled(w->a, bytes_of(&w->is[0]), "the product's A") ||
        !emu_memory_filled(w->b, bytes_of(&w->is[1]), "the product's B") ||
        !emu_memory_check(w->d, bytes_of(&w->is[2]), "the product's D"))
        return false;
    if (has_bias(h->epilogue) &&
        !emu_memory_filled(h->bias, m * size_of(h->bias_type),
                           "the product's bias"))
        return false;
    return !has_aux(h->epilogue) ||
           emu_memory_check(h->aux, ((n - 1) * (size_t)h->aux_ld + m) * size,
                            "the product's aux");
}

static void touch_matrix(const struct emu_matrix *m, const void *p,
                         enum emu_access kind)
{
    size_t size = size_of(m->type);

    for (size_t c = 0; c < m->cols && m->ld != m->rows; c++)
        emu_touch((const char *)p + c * m->ld * size, m->rows * size, kind);
    if (m->ld == m->rows)
        emu_touch(p, m->rows * m->cols * size, kind);
}

/* Notes what memory the product uses, to check the order of streams. */
static void touch_all(const struct work *w)
{
    const struct emu_product *h = &w->how;
    struct emu_matrix aux = w->is[2];

    touch_matrix(&w->is[0], w->a, EMU_READ);
    touch_matrix(&w->is[1], w->b, EMU_READ);
    touch_matrix(&w->is[2], w->d, EMU_WRITE);
    if (has_bias(h->epilogue))
        emu_touch(h->bias, aux.rows * size_of(h->bias_type), EMU_READ);
    aux.ld = (size_t)h->aux_ld;
    if (has_aux(h->epilogue))
        touch_matrix(&aux, h->aux,
                     h->epilogue == CUBLASLT_EPILOGUE_DGELU ? EMU_READ
                                                            : EMU_WRITE);
    for (int i = 0; i < 2; i++)
        if (h->scale[i] != NULL)
            emu_touch(h->scale[i], sizeof(float), EMU_READ);
    /* The workspace: its beginning is enough to find that two streams share
     * it. */
    emu_touch(w->workspace, w->workspace_bytes < 256 ? w->workspace_bytes : 256,
              EMU_WRITE);
}

/* Products that would take too long, such as the 4096 cubed that the trainer
 * times: their arguments are checked, and the result begins with NaNs. */
static bool is_too_long(const struct work *w)
{
    const struct emu_matrix *a = &w->is[0], *d = &w->is[2];

    if ((double)a->rows * (double)a->cols * (double)d->cols < 0x1p33)
        return false;
    memset(w->d, 0xff, bytes_of(d) < 4096 ? bytes_of(d) : 4096);
    emu_memory_written(w->d, bytes_of(d));
    return true;
}

/* Column j of a product of [k, m] and [k, n]. */
static void multiply_column(double *restrict sum, const double *restrict a,
                            const double *restrict b, size_t m, size_t n,
                            size_t k, size_t j)
{
    memset(sum, 0, m * sizeof(*sum));
    for (size_t l = 0; l < k; l++)
        for (size_t i = 0; i < m; i++)
            sum[i] += a[l * m + i] * b[l * n + j];
}

static void multiply(const struct work *w, float scale)
{
    size_t m, n, k;
    double *a = widen(&w->is[0], w->a, w->how.op[0] == CUBLAS_OP_N, &m, &k);
    double *b = widen(&w->is[1], w->b, w->how.op[1] == CUBLAS_OP_T, &n, &k);
    double *sum = malloc(m * sizeof(*sum));
    const struct emu_matrix *d = &w->is[2];

    if (sum == NULL)
        abort();
    for (size_t j = 0; j < n; j++) {
        multiply_column(sum, a, b, m, n, k, j);
        for (size_t i = 0; i < m; i++) {
            float x = (float)sum[i] * w->alpha * scale;

            if (w->beta != 0)
                x += w->beta * get(d->type, w->d, j * d->ld + i);
            put(d->type, w->d, j * d->ld + i, finish(w, x, i, j));
        }
        if (d->ld != m)
            emu_memory_written((char *)w->d + j * d->ld * size_of(d->type),
                               m * size_of(d->type));
    }
    if (d->ld == m)
        emu_memory_written(w->d, m * n * size_of(d->type));
    free(a);
    free(b);
    free(sum);
}

/* EMULATED_GFLOPS: no product is faster than that, so that one of another
 * number is slower. */
static void take_time(const struct work *w)
{
    const char *rate = getenv("EMULATED_GFLOPS");
    const struct emu_matrix *a = &w->is[0], *d = &w->is[2];
    double most = rate != NULL ? atof(rate) * 1e9 : 0, seconds;

    if (!(most > 0))
        return;
    seconds = 2.0 * (double)a->rows * (double)a->cols * (double)d->cols / most;
    nanosleep(&(struct timespec){(time_t)seconds,
                                 (long)((seconds - floor(seconds)) * 1e9)},
              NULL);
}

/* Such a product of 16 bits, and any of fp8, may be one of the forward, which
 * leaves no room to transfers that are beside it only when it is repeated. */
static bool is_forward(const struct work *w)
{
    return w->how.op[0] == CUBLAS_OP_T && w->is[2].type != CUDA_R_32F;
}

static void do_product(void *arg, bool backwards)
{
    struct work *w = arg;
    float scale = 1;

    (void)backwards;
    if (!check_memory(w))
        return;
    for (int i = 0; i < 2; i++) {
        if (w->how.scale[i] == NULL)
            continue;
        if (!emu_memory_filled(w->how.scale[i], sizeof(float),
                               "the product's scale"))
            return;
        scale *= *w->how.scale[i];
    }
    if (is_too_long(w))
        return;
    take_time(w);
    touch_all(w);
    if (!is_forward(w))
        emu_check_room(w->how.sms);
    if (emu_faulted() == NULL)
        multiply(w, scale);
}

/* cuBLASLt's conditions: fp8 products are A^T B with dimensions that are
 * multiples of 16; GELU with aux needs a 16-bit result whose rows are a
 * multiple of 8. */
static bool is_supported(const struct emu_product *h,
                         const struct emu_matrix *a, const struct emu_matrix *b,
                         const struct emu_matrix *d)
{
    bool narrow = size_of(a->type) == 1;

    if (narrow && (h->op[0] != CUBLAS_OP_T || h->op[1] != CUBLAS_OP_N ||
                   a->rows % 16 || a->cols % 16 || b->cols % 16))
        return false;
    return !has_aux(h->epilogue) || (size_of(d->type) == 2 && d->rows % 8 == 0);
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
               const void *alpha, const void *a, cublasLtMatrixLayout_t a_is,
               const void *b, cublasLtMatrixLayout_t b_is, const void *beta,
               const void *c, cublasLtMatrixLayout_t c_is, void *d,
               cublasLtMatrixLayout_t d_is, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t bytes, cudaStream_t stream)
{
    struct work *w = malloc(sizeof(*w));
    uintptr_t align = algo->data[ALGO_ALIGN];
    cudaError_t status = cudaErrorInvalidValue;

    (void)handle;
    if (w == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *w = (struct work){.how = *desc,
                       .is = {*a_is, *b_is, *d_is},
                       .a = a,
                       .b = b,
                       .d = d,
                       .alpha = *(const float *)alpha,
                       .beta = *(const float *)beta,
                       .workspace = workspace,
                       .workspace_bytes = bytes};
    emu_count(__func__);
    emu_chosen(desc, a_is, d_is, w->beta != 0, (int)algo->data[ALGO_NUMBER]);
    emu_lock();
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) % align != 0)
        emu_fault("a product whose operands are not at %zu bytes, as its "
                  "algorithm wants",
                  (size_t)align);
    if (desc->fast && (a_is->type < CUDA_R_8F_E4M3 || d_is->type == CUDA_R_32F))
        emu_fault("fast sums in a product that is not of fp8, or whose result "
                  "is fp32");
    if (!desc->fast && a_is->type >= CUDA_R_8F_E4M3 && d_is->type != CUDA_R_32F)
        emu_fault("slow sums in a product of fp8 whose result is rounded");
    if (c == d && c_is == d_is && is_supported(desc, a_is, b_is, d_is) &&
        emu_memory_check(workspace, bytes, "the product's workspace"))
        status = emu_do(stream, "cublasLtMatmul", do_product, free, w);
    else
        free(w);
    emu_unlock();
    return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                 : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* -- plans
 * ----------------------------------------------------------------------------
 */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t pref, int most,
    cublasLtMatmulHeuristicResult_t list[], int *found)
{
    uint32_t rounding = CUBLASLT_REDUCTION_SCHEME_INPLACE |
                        CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;

    (void)handle;
    (void)c;
    *found = 0;
    /* A GPU would choose algorithms that round partial sums to 16 bits. */
    if (d->type != CUDA_R_32F && (pref->reductions & rounding) != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(desc, a, b, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* two, so that a search has something to choose from */
    while (*found < most && *found < 2) {
        memset(&list[*found], 0, sizeof(*list));
        list[*found].algo.data[ALGO_ALIGN] = pref->align;
        list[*found].algo.data[ALGO_NUMBER] = (uint64_t)*found;
        ++*found;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                        const cublasLtMatmulAlgo_t *algo,
                        cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    (void)c;
    memset(result, 0, sizeof(*result));
    result->algo = *algo;
    return is_supported(desc, a, b, d) ? CUBLAS_STATUS_SUCCESS
                                       : CUBLAS_STATUS_NOT_SUPPORTED;
}
