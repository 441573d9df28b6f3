/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt, each planned once and kept by its shape. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/matmul.h"

/* Most plans in a chain. Texts of any length, and experts in fp8, need a shape
 * for each number of rows: the least recently used plan is dropped. */
#define CHAIN 16

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

/* -- planning ------------------------------------------------------------- */

void cuda_matmul_free(struct cuda_matmul *p)
{
    if (p == NULL)
        return;
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
    for (int i = 0; i < CUDA_MATMUL_CHAINS; i++) {
        while (dev->matmuls[i] != NULL) {
            struct cuda_matmul *p = dev->matmuls[i];

            dev->matmuls[i] = p->next;
            cuda_matmul_free(p);
        }
    }
}

static cublasStatus_t set_attribute(cublasLtMatmulDesc_t desc,
                                    cublasLtMatmulDescAttributes_t attribute,
                                    const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes);
}

/* Without a number of multiprocessors cuBLASLt takes kernels whose blocks fill
 * all of them, and come in two turns where transfers have some. */
static cublasStatus_t describe_product(const struct plait_device *dev,
                                       struct cuda_matmul *p)
{
    const struct product *k = &p->key;
    bool ta = k->op_a == CUBLAS_OP_T, tb = k->op_b == CUBLAS_OP_T;
    cudaDataType_t out = data_type(k->out);
    int32_t sms = k->room > 0 ? dev->sms - k->room : 0;
    int8_t fast = k->fast != 0;
    cublasStatus_t s;

    s = cublasLtMatmulDescCreate(
        &p->desc, k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &k->op_a,
                          sizeof(k->op_a));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &k->op_b,
                          sizeof(k->op_b));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue,
                          sizeof(k->epilogue));
    if (s == CUBLAS_STATUS_SUCCESS && fast)
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                          sizeof(fast));
    if (s == CUBLAS_STATUS_SUCCESS && sms > 0)
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms,
                          sizeof(sms));
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

/* Sets the pointers of scales and epilogue, which differ from call to call. */
static cublasStatus_t set_pointers(struct cuda_matmul *p,
                                   const struct operands *o)
{
    cudaDataType_t type = data_type(p->key.out);
    int64_t ld = (int64_t)p->key.m;
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;

    if (p->key.fp8 != FP8_NONE) {
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                          &o->a_scale, sizeof(o->a_scale));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                              &o->b_scale, sizeof(o->b_scale));
    }
    if (s == CUBLAS_STATUS_SUCCESS && o->bias != NULL) {
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                          sizeof(type));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                              &o->bias, sizeof(o->bias));
    }
    if (s == CUBLAS_STATUS_SUCCESS && o->aux != NULL) {
        s = set_attribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld,
                          sizeof(ld));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = set_attribute(p->desc,
                              CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                              &o->aux, sizeof(o->aux));
    }
    return s;
}

/* An algorithm that divides k adds the parts up. In the type of a result of 16
 * bits each part would be rounded first: on an H200 a product of k 1602 was off
 * by a part's rounding, many times that of the result. */
static uint32_t reductions(const struct product *k)
{
    return k->out == PLAIT_F32 ? CUBLASLT_REDUCTION_SCHEME_MASK
                               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

cublasStatus_t cuda_matmul_list(cublasLtHandle_t blas,
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
    uint32_t bytes = p->key.align, schemes = reductions(&p->key);
    cublasStatus_t s;

    *found = 0;
    s = cublasLtMatmulPreferenceCreate(&pref);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    s = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
        sizeof(workspace));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulPreferenceSetAttribute(
            pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
            sizeof(schemes));
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = cublasLtMatmulPreferenceSetAttribute(pref, align[i], &bytes,
                                                 sizeof(bytes));
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = cublasLtMatmulAlgoGetHeuristic(blas, p->desc, p->a, p->b, p->d,
                                           p->d, pref, CUDA_ALGORITHMS, list,
                                           found);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED) {
            *found = 0;
            s = CUBLAS_STATUS_SUCCESS;
        }
    }
    cublasLtMatmulPreferenceDestroy(pref);
    return s;
}

/* Sets p->algo, and p->supported if there is an algorithm. */
static cublasStatus_t choose_algorithm(struct plait_queue *q,
                                       struct cuda_matmul *p)
{
    cublasLtMatmulHeuristicResult_t list[CUDA_ALGORITHMS];
    int found;
    cublasStatus_t s;

    p->supported = cuda_tune_find(q->dev, p);
    if (p->supported)
        return CUBLAS_STATUS_SUCCESS;
    s = cuda_matmul_list(q->dev->blas, p, list, &found);
    if (s != CUBLAS_STATUS_SUCCESS || found == 0)
        return s;
    p->supported = true;
    p->algo = list[0].algo;
    cuda_tune_want(q->dev, &p->key);
    return CUBLAS_STATUS_SUCCESS;
}

struct cuda_matmul *cuda_matmul_create(const struct plait_device *dev,
                                       const struct product *key,
                                       const struct operands *o,
                                       cublasStatus_t *status)
{
    struct cuda_matmul *p = calloc(1, sizeof(*p));

    if (p == NULL) {
        *status = CUBLAS_STATUS_ALLOC_FAILED;
        return NULL;
    }
    memcpy(&p->key, key, sizeof(*key));
    *status = describe_product(dev, p);
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = set_pointers(p, o);
    if (*status == CUBLAS_STATUS_SUCCESS)
        return p;
    cuda_matmul_free(p);
    return NULL;
}

/* FNV-1a */
static struct cuda_matmul **chain_of(struct plait_device *dev,
                                     const struct product *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < sizeof(*key); i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return &dev->matmuls[hash % CUDA_MATMUL_CHAINS];
}

/* The chain's plan for the key, moved to its head; NULL: there is none. */
static struct cuda_matmul *take_first(struct cuda_matmul **chain,
                                      const struct product *key)
{
    for (struct cuda_matmul **link = chain; *link != NULL;
         link = &(*link)->next) {
        struct cuda_matmul *p = *link;

        if (memcmp(&p->key, key, sizeof(*key)) != 0)
            continue;
        *link = p->next;
        p->next = *chain;
        *chain = p;
        return p;
    }
    return NULL;
}

static void add_first(struct cuda_matmul **chain, struct cuda_matmul *p)
{
    struct cuda_matmul **link = chain;

    p->next = *chain;
    *chain = p;
    for (int i = 0; i < CHAIN && *link != NULL; i++)
        link = &(*link)->next;
    if (*link != NULL) {
        cuda_matmul_free(*link);
        *link = NULL;
    }
}

/* The plan for `key`, made if there is none yet; the device's lock is held. */
static struct cuda_matmul *find_plan(struct plait_queue *q,
                                     const struct product *key,
                                     const struct operands *o,
                                     cublasStatus_t *status)
{
    struct cuda_matmul **chain = chain_of(q->dev, key);
    struct cuda_matmul *p = take_first(chain, key);

    *status = CUBLAS_STATUS_SUCCESS;
    if (p != NULL)
        return p;
    p = cuda_matmul_create(q->dev, key, o, status);
    if (p == NULL)
        return NULL;
    *status = choose_algorithm(q, p);
    if (*status != CUBLAS_STATUS_SUCCESS) {
        cuda_matmul_free(p);
        return NULL;
    }
    add_first(chain, p);
    return p;
}

/* -- running -------------------------------------------------------------- */

cublasStatus_t cuda_matmul_run(struct plait_queue *q, struct cuda_matmul *p,
                               const struct operands *o, void *d,
                               const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1, zero = 0;
    cublasStatus_t s = set_pointers(p, o);

    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    return cublasLtMatmul(q->dev->blas, p->desc, &one, o->a, p->a, o->b, p->b,
                          p->key.accumulate ? &one : &zero, d, p->d, d, p->d,
                          algo, o->workspace, WORKSPACE, q->stream);
}

/* At most half of the device; the lock is held. */
static int room_for(const struct plait_device *dev, const struct product *key)
{
    int room = key->forward ? dev->forward_room : dev->room;

    return room < dev->sms / 2 ? room : dev->sms / 2;
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
    key->room = room_for(q->dev, key);
    p = find_plan(q, key, o, &s);
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

void cuda_product_init(struct product *key, enum plait_dtype type)
{
    memset(key, 0, sizeof(*key));
    key->op_a = key->op_b = CUBLAS_OP_N;
    key->in = key->out = type;
    key->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
}
