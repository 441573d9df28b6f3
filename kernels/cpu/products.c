/* SPDX-License-Identifier: Apache-2.0 */
#include <cblas.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/dnnl_api.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/products.h"

/* The matrix library compiles a primitive when a shape first occurs; it is
 * kept. Training needs some twenty. Generation with growing prompts needs more:
 * then the least recently used is dropped. */
#define CAPACITY 64

struct primitive {
    struct cpu_product shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, bias, dst, scratch;
    size_t scratch_bytes;
    uint64_t used; /* time of the last use, by `clock` */
};

struct cpu_products {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int count;
    uint64_t clock;
    int blas_avx512;
    struct primitive kept[CAPACITY];
};

static void primitive_clear(struct primitive *p)
{
    dnnl_primitive_destroy(p->primitive);
    dnnl_memory_destroy(p->a);
    dnnl_memory_destroy(p->b);
    dnnl_memory_destroy(p->bias);
    dnnl_memory_destroy(p->dst);
    dnnl_memory_destroy(p->scratch);
    memset(p, 0, sizeof(*p));
}

/* Whether fp32 products go to OpenBLAS. Measured with OpenBLAS 0.3.21 and
 * oneDNN 2.6: on Intel with AVX-512 OpenBLAS is up to 2.2 times as fast in the
 * two backward products; on other processors it uses its Haswell kernels, half
 * as fast as oneDNN's AVX-512 ones. */
static int blas_has_avx512(void)
{
    const char *core = openblas_get_corename();

    return strcmp(core, "SkylakeX") == 0 || strcmp(core, "Cooperlake") == 0 ||
           strcmp(core, "SapphireRapids") == 0;
}

struct cpu_products *cpu_products_create(void)
{
    struct cpu_products *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    if (dnnl_engine_create(&s->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        cpu_products_destroy(s);
        errno = ENOMEM;
        return NULL;
    }
    s->blas_avx512 = cpu_isa() >= CPU_AVX512 && blas_has_avx512();
    return s;
}

void cpu_products_destroy(struct cpu_products *s)
{
    int saved_errno = errno;

    if (s == NULL)
        return;
    for (int i = 0; i < s->count; i++)
        primitive_clear(&s->kept[i]);
    dnnl_stream_destroy(s->stream);
    dnnl_engine_destroy(s->engine);
    free(s);
    errno = saved_errno;
}

int cpu_product_native(enum plait_dtype type)
{
    unsigned isa = dnnl_get_effective_cpu_isa();

    if (type == PLAIT_BF16_T)
        return (isa & dnnl_cpu_isa_avx512_core_bf16) ==
               dnnl_cpu_isa_avx512_core_bf16;
    return type == PLAIT_F32;
}

/* A dense row-major matrix, or one that is stored transposed. */
static dnnl_status_t describe_matrix(cpu_md *md, size_t rows, size_t cols,
                                     int transposed, enum plait_dtype type)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)cols,
                           transposed ? (dnnl_dim_t)rows : 1};

    return cpu_md_with_strides(
        md, 2, dims, type == PLAIT_F32 ? dnnl_f32 : dnnl_bf16, strides);
}

static dnnl_status_t memories(struct primitive *p, dnnl_engine_t engine,
                              const cpu_md md[4], dnnl_primitive_desc_t desc)
{
    cpu_const_md scratch =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_status_t rc;

    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    rc = dnnl_memory_create(&p->a, md[0], engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&p->b, md[1], engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&p->dst, md[2], engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success && p->shape.has_bias)
        rc = dnnl_memory_create(&p->bias, md[3], engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&p->scratch, scratch, engine, DNNL_MEMORY_NONE);
    return rc;
}

static dnnl_status_t compile(struct primitive *p, dnnl_engine_t engine)
{
    const struct cpu_product *s = &p->shape;
    cpu_md md[4] = {NULL};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t rc;

    rc = describe_matrix(&md[0], s->M, s->K, s->transpose_a, s->type);
    if (rc == dnnl_success)
        rc = describe_matrix(&md[1], s->K, s->N, s->transpose_b, s->type);
    if (rc == dnnl_success)
        rc = describe_matrix(&md[2], s->M, s->N, 0, s->dst_type);
    if (rc == dnnl_success)
        rc = describe_matrix(&md[3], 1, s->N, 0, s->type);
    if (rc == dnnl_success)
        rc = cpu_dnnl_attr_create(&attr, s->accumulate);
    if (rc == dnnl_success)
        rc = cpu_dnnl_matmul_create(
            &desc, engine,
            &(struct cpu_matmul_mds){.a = md[0],
                                     .b = md[1],
                                     .dst = md[2],
                                     .bias = s->has_bias ? md[3] : NULL},
            attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&p->primitive, desc);
    if (rc == dnnl_success)
        rc = memories(p, engine, md, desc);
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 4; i++)
        cpu_md_destroy(md[i]);
    return rc;
}

static int same(const struct cpu_product *a, const struct cpu_product *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K &&
           a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->type == b->type &&
           a->dst_type == b->dst_type && a->has_bias == b->has_bias &&
           a->accumulate == b->accumulate;
}

static struct primitive *find(struct cpu_products *s,
                              const struct cpu_product *shape)
{
    for (int i = 0; i < s->count; i++)
        if (same(&s->kept[i].shape, shape))
            return &s->kept[i];
    return NULL;
}

static struct primitive *make(struct plait_queue *q, struct cpu_products *s,
                              const struct cpu_product *shape)
{
    struct primitive *p = &s->kept[s->count];
    dnnl_status_t rc;

    if (s->count == CAPACITY) {
        p = &s->kept[0];
        for (int i = 1; i < CAPACITY; i++)
            if (s->kept[i].used < p->used)
                p = &s->kept[i];
        primitive_clear(p);
    } else {
        s->count++;
    }
    p->shape = *shape;
    rc = compile(p, s->engine);
    if (rc == dnnl_success)
        return p;
    primitive_clear(p);
    *p = s->kept[--s->count];
    memset(&s->kept[s->count], 0, sizeof(*p));
    plait_queue_fail(&q->head, ENOMEM,
                     "oneDNN: no %s product of %zu x %zu x %zu (status %d)",
                     plait_dtype_name(shape->type), shape->M, shape->N,
                     shape->K, (int)rc);
    return NULL;
}

static int execute(struct plait_queue *q, struct primitive *p, const void *a,
                   const void *b, const void *bias, void *dst)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a},
                              {DNNL_ARG_WEIGHTS, p->b},
                              {DNNL_ARG_DST, p->dst},
                              {DNNL_ARG_SCRATCHPAD, p->scratch},
                              {DNNL_ARG_BIAS, p->bias}};
    void *scratch = NULL;
    dnnl_status_t rc;

    if (p->scratch_bytes > 0) {
        scratch = cpu_scratch(q, CPU_SCRATCH_LIBRARY, p->scratch_bytes);
        if (scratch == NULL)
            return -1;
    }
    dnnl_memory_set_data_handle(p->a, (void *)a);
    dnnl_memory_set_data_handle(p->b, (void *)b);
    dnnl_memory_set_data_handle(p->dst, dst);
    dnnl_memory_set_data_handle(p->scratch, scratch);
    if (p->bias != NULL)
        dnnl_memory_set_data_handle(p->bias, (void *)bias);
    rc = dnnl_primitive_execute(p->primitive, q->cpu->products->stream,
                                p->bias != NULL ? 5 : 4, args);
    if (rc == dnnl_success)
        rc = dnnl_stream_wait(q->cpu->products->stream);
    if (rc != dnnl_success)
        return plait_queue_fail(&q->head, EIO, "oneDNN: status %d", (int)rc);
    return 0;
}

static int by_blas(const struct cpu_products *s, const struct cpu_product *p)
{
    int forward = p->transpose_b && !p->transpose_a;

    return s->blas_avx512 && p->type == PLAIT_F32 && !forward && !p->has_bias;
}

int cpu_product_run(struct plait_queue *q, const struct cpu_product *p,
                    const void *a, const void *b, const void *bias, void *dst)
{
    struct cpu_products *s = q->cpu->products;
    struct primitive *kept;

    if (p->M == 0 || p->N == 0)
        return 0;
    /* Both libraries use as many threads as OpenMP would: keeps one pool for
     * all. */
    if (omp_get_max_threads() != q->dev->threads)
        omp_set_num_threads(q->dev->threads);
    if (by_blas(s, p)) {
        cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
                    p->transpose_b ? CblasTrans : CblasNoTrans, (blasint)p->M,
                    (blasint)p->N, (blasint)p->K, 1, a,
                    (blasint)(p->transpose_a ? p->M : p->K), b,
                    (blasint)(p->transpose_b ? p->K : p->N),
                    p->accumulate ? 1 : 0, dst, (blasint)p->N);
        return 0;
    }
    kept = find(s, p);
    if (kept == NULL)
        kept = make(q, s, p);
    if (kept == NULL)
        return -1;
    kept->used = ++s->clock;
    return execute(q, kept, a, b, bias, dst);
}
