/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/conv.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "kernels/cpu/dnnl_api.h"

/* Images are stored channels last, which the library can read. It needs the
 * weights in a blocked order, so that each call reorders them: they are small
 * compared to the images. */

#define CAPACITY 128 /* a ResNet-50 has about 80 */

struct conv {
    struct plait_conv shape;
    enum cpu_conv_kind kind;
    dnnl_primitive_t primitive;
    dnnl_primitive_t reorder[2]; /* of the weights; [1]: adds to the result */
    dnnl_memory_t image, result, plain, packed, scratch, reorder_scratch;
    size_t packed_bytes, scratch_bytes;
    uint64_t used; /* time of the last use, by `clock` */
};

struct cpu_convs {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int count;
    uint64_t clock;
    struct conv kept[CAPACITY];
};

static void conv_clear(struct conv *v)
{
    dnnl_primitive_destroy(v->primitive);
    dnnl_primitive_destroy(v->reorder[0]);
    dnnl_primitive_destroy(v->reorder[1]);
    dnnl_memory_destroy(v->image);
    dnnl_memory_destroy(v->result);
    dnnl_memory_destroy(v->plain);
    dnnl_memory_destroy(v->packed);
    dnnl_memory_destroy(v->scratch);
    dnnl_memory_destroy(v->reorder_scratch);
    memset(v, 0, sizeof(*v));
}

static struct cpu_convs *create_convs(void)
{
    struct cpu_convs *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    if (dnnl_engine_create(&s->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&s->stream, s->engine, dnnl_stream_default_flags) ==
            dnnl_success)
        return s;
    cpu_convs_destroy(s);
    errno = ENOMEM;
    return NULL;
}

void cpu_convs_destroy(struct cpu_convs *s)
{
    int saved = errno;

    if (s == NULL)
        return;
    for (int i = 0; i < s->count; i++)
        conv_clear(&s->kept[i]);
    dnnl_stream_destroy(s->stream);
    dnnl_engine_destroy(s->engine);
    free(s);
    errno = saved;
}

/* -- compiling --------------------------------------------------------------
 */

/* Image, weight and result of a convolution; packed: the weight in the
 * library's order. */
struct shapes {
    cpu_md image, result, plain, packed;
    dnnl_dims_t stride, pad;
};

static void shapes_clear(struct shapes *m)
{
    cpu_md_destroy(m->image);
    cpu_md_destroy(m->result);
    cpu_md_destroy(m->plain);
    cpu_md_destroy(m->packed);
}

static dnnl_status_t describe(struct shapes *m, const struct plait_conv *c)
{
    dnnl_dim_t OH = (dnnl_dim_t)plait_conv_side(c, c->H);
    dnnl_dim_t OW = (dnnl_dim_t)plait_conv_side(c, c->W);
    dnnl_dims_t image = {(dnnl_dim_t)c->N, (dnnl_dim_t)c->C, (dnnl_dim_t)c->H,
                         (dnnl_dim_t)c->W};
    dnnl_dims_t result = {(dnnl_dim_t)c->N, (dnnl_dim_t)c->O, OH, OW};
    dnnl_dims_t weight = {(dnnl_dim_t)c->O, (dnnl_dim_t)c->C, c->kernel,
                          c->kernel};
    dnnl_status_t rc;

    for (int i = 0; i < 2; i++) {
        m->stride[i] = c->stride;
        m->pad[i] = c->pad;
    }
    rc = cpu_md_with_tag(&m->image, 4, image, dnnl_f32, dnnl_nhwc);
    if (rc == dnnl_success)
        rc = cpu_md_with_tag(&m->result, 4, result, dnnl_f32, dnnl_nhwc);
    if (rc == dnnl_success)
        rc = cpu_md_with_tag(&m->plain, 4, weight, dnnl_f32, dnnl_ohwi);
    if (rc == dnnl_success)
        rc = cpu_md_with_tag(&m->packed, 4, weight, dnnl_f32,
                             dnnl_format_tag_any);
    return rc;
}

static dnnl_status_t
create_desc(dnnl_primitive_desc_t *desc, const struct shapes *m,
            enum cpu_conv_kind kind, dnnl_primitive_desc_t hint,
            dnnl_primitive_attr_t attr, dnnl_engine_t engine)
{
    const struct cpu_conv_mds md = {.image = m->image,
                                    .weight = m->packed,
                                    .result = m->result,
                                    .stride = m->stride,
                                    .pad = m->pad};

    return cpu_dnnl_conv_create(desc, engine, kind, &md, hint, attr);
}

/* The reordering of the weight: plain to packed or, for the weight's gradient,
 * packed to plain. */
static dnnl_status_t compile_reorder(struct conv *v, cpu_const_md plain,
                                     cpu_const_md packed, int accumulate,
                                     dnnl_engine_t engine)
{
    int back = v->kind == CPU_CONV_BACKWARD_WEIGHT;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t rc = cpu_dnnl_attr_create(&attr, accumulate);
    size_t bytes;

    if (rc == dnnl_success)
        rc = dnnl_reorder_primitive_desc_create(&desc, back ? packed : plain,
                                                engine, back ? plain : packed,
                                                engine, attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&v->reorder[accumulate], desc);
    if (rc == dnnl_success) {
        cpu_const_md md =
            dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);

        bytes = dnnl_memory_desc_get_size(md);
        if (bytes > v->scratch_bytes)
            v->scratch_bytes = bytes;
        dnnl_memory_destroy(v->reorder_scratch);
        rc = dnnl_memory_create(&v->reorder_scratch, md, engine,
                                DNNL_MEMORY_NONE);
    }
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    return rc;
}

static dnnl_status_t create_memories(struct conv *v, const struct shapes *m,
                                     cpu_const_md packed,
                                     dnnl_primitive_desc_t desc,
                                     dnnl_engine_t engine)
{
    cpu_const_md scratch =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    dnnl_status_t rc;

    v->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    v->packed_bytes = dnnl_memory_desc_get_size(packed);
    rc = dnnl_memory_create(&v->image, m->image, engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc =
            dnnl_memory_create(&v->result, m->result, engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&v->plain, m->plain, engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&v->packed, packed, engine, DNNL_MEMORY_NONE);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&v->scratch, scratch, engine, DNNL_MEMORY_NONE);
    return rc;
}

static dnnl_status_t compile(struct conv *v, dnnl_engine_t engine)
{
    dnnl_query_t weight = v->kind == CPU_CONV_BACKWARD_WEIGHT
                              ? dnnl_query_diff_weights_md
                              : dnnl_query_weights_md;
    dnnl_primitive_desc_t forward = NULL, desc = NULL;
    dnnl_primitive_attr_t attr = NULL;
    struct shapes m = {NULL};
    cpu_const_md packed = NULL;
    dnnl_status_t rc = describe(&m, &v->shape);

    if (rc == dnnl_success)
        rc = cpu_dnnl_attr_create(&attr, 0);
    if (rc == dnnl_success && v->kind != CPU_CONV_FORWARD)
        rc = create_desc(&forward, &m, CPU_CONV_FORWARD, NULL, attr, engine);
    if (rc == dnnl_success)
        rc = create_desc(&desc, &m, v->kind, forward, attr, engine);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&v->primitive, desc);
    if (rc == dnnl_success) {
        packed = dnnl_primitive_desc_query_md(desc, weight, 0);
        rc = create_memories(v, &m, packed, desc, engine);
    }
    for (int i = 0;
         i <= (v->kind == CPU_CONV_BACKWARD_WEIGHT) && rc == dnnl_success; i++)
        rc = compile_reorder(v, m.plain, packed, i, engine);
    dnnl_primitive_desc_destroy(forward);
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    shapes_clear(&m);
    return rc;
}

static int same(const struct plait_conv *a, const struct plait_conv *b)
{
    return a->N == b->N && a->H == b->H && a->W == b->W && a->C == b->C &&
           a->O == b->O && a->kernel == b->kernel && a->stride == b->stride &&
           a->pad == b->pad;
}

/* A place for a new convolution: a free one, or that of the least recently
 * used. */
static struct conv *take_place(struct cpu_convs *s)
{
    struct conv *v = &s->kept[0];

    if (s->count < CAPACITY)
        return &s->kept[s->count++];
    for (int i = 1; i < CAPACITY; i++)
        if (s->kept[i].used < v->used)
            v = &s->kept[i];
    conv_clear(v);
    return v;
}

static struct conv *find(struct plait_queue *q, const struct plait_conv *c,
                         enum cpu_conv_kind kind)
{
    struct cpu_convs *s = q->cpu->convs;
    struct conv *v;
    dnnl_status_t rc;

    if (s == NULL)
        s = q->cpu->convs = create_convs();
    if (s == NULL) {
        plait_queue_fail(&q->head, ENOMEM, "oneDNN: out of memory");
        return NULL;
    }
    /* The library uses as many threads as OpenMP would: keeps one pool for
     * all. */
    if (omp_get_max_threads() != q->dev->threads)
        omp_set_num_threads(q->dev->threads);
    s->clock++;
    for (int i = 0; i < s->count; i++)
        if (s->kept[i].kind == kind && same(&s->kept[i].shape, c)) {
            s->kept[i].used = s->clock;
            return &s->kept[i];
        }
    v = take_place(s);
    v->shape = *c;
    v->kind = kind;
    v->used = s->clock;
    rc = compile(v, s->engine);
    if (rc == dnnl_success)
        return v;
    conv_clear(v);
    plait_queue_fail(&q->head, ENOMEM,
                     "oneDNN: no convolution of %zu x %zu x %zu x %zu to %zu "
                     "channels (status %d)",
                     c->N, c->H, c->W, c->C, c->O, (int)rc);
    return NULL;
}

/* -- running -----------------------------------------------------------------
 */

/* Provides memory for the packed weight and for the library's scratchpad. */
static int take_scratch(struct plait_queue *q, struct conv *v)
{
    size_t packed = (v->packed_bytes + 63) / 64 * 64;
    char *room =
        cpu_scratch(q, CPU_SCRATCH_LIBRARY, packed + v->scratch_bytes + 64);

    if (room == NULL)
        return -1;
    dnnl_memory_set_data_handle(v->packed, room);
    dnnl_memory_set_data_handle(v->scratch, room + packed);
    dnnl_memory_set_data_handle(v->reorder_scratch, room + packed);
    return 0;
}

static int execute(struct plait_queue *q, dnnl_primitive_t p, int n,
                   const dnnl_exec_arg_t *args)
{
    dnnl_stream_t stream = q->cpu->convs->stream;
    dnnl_status_t rc = dnnl_primitive_execute(p, stream, n, args);

    if (rc == dnnl_success)
        rc = dnnl_stream_wait(stream);
    if (rc == dnnl_success)
        return 0;
    return plait_queue_fail(&q->head, EIO, "oneDNN: status %d", (int)rc);
}

static int reorder(struct plait_queue *q, struct conv *v, int accumulate)
{
    int back = v->kind == CPU_CONV_BACKWARD_WEIGHT;
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_FROM, back ? v->packed : v->plain},
        {DNNL_ARG_TO, back ? v->plain : v->packed},
        {DNNL_ARG_SCRATCHPAD, v->reorder_scratch},
    };

    return execute(q, v->reorder[accumulate], 3, args);
}

int cpu_conv_forward(struct plait_queue *q, const struct plait_conv *c,
                     const struct plait_conv_arrays *a)
{
    struct conv *v = find(q, c, CPU_CONV_FORWARD);

    if (v == NULL || take_scratch(q, v) < 0)
        return -1;
    dnnl_memory_set_data_handle(v->plain, (void *)a->w);
    dnnl_memory_set_data_handle(v->image, (void *)a->inp);
    dnnl_memory_set_data_handle(v->result, a->out);
    if (reorder(q, v, 0) < 0)
        return -1;
    return execute(q, v->primitive, 4,
                   (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, v->image},
                                       {DNNL_ARG_WEIGHTS, v->packed},
                                       {DNNL_ARG_DST, v->result},
                                       {DNNL_ARG_SCRATCHPAD, v->scratch}});
}

int cpu_conv_backward_input(struct plait_queue *q, const struct plait_conv *c,
                            const struct plait_conv_arrays *a)
{
    struct conv *v = find(q, c, CPU_CONV_BACKWARD_INPUT);

    if (v == NULL || take_scratch(q, v) < 0)
        return -1;
    dnnl_memory_set_data_handle(v->plain, (void *)a->w);
    dnnl_memory_set_data_handle(v->image, a->dinp);
    dnnl_memory_set_data_handle(v->result, (void *)a->dout);
    if (reorder(q, v, 0) < 0)
        return -1;
    return execute(q, v->primitive, 4,
                   (dnnl_exec_arg_t[]){{DNNL_ARG_DIFF_SRC, v->image},
                                       {DNNL_ARG_WEIGHTS, v->packed},
                                       {DNNL_ARG_DIFF_DST, v->result},
                                       {DNNL_ARG_SCRATCHPAD, v->scratch}});
}

int cpu_conv_backward_weight(struct plait_queue *q, const struct plait_conv *c,
                             const struct plait_conv_arrays *a)
{
    struct conv *v = find(q, c, CPU_CONV_BACKWARD_WEIGHT);

    if (v == NULL || take_scratch(q, v) < 0)
        return -1;
    dnnl_memory_set_data_handle(v->plain, a->dw);
    dnnl_memory_set_data_handle(v->image, (void *)a->inp);
    dnnl_memory_set_data_handle(v->result, (void *)a->dout);
    if (execute(q, v->primitive, 4,
                (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, v->image},
                                    {DNNL_ARG_DIFF_DST, v->result},
                                    {DNNL_ARG_DIFF_WEIGHTS, v->packed},
                                    {DNNL_ARG_SCRATCHPAD, v->scratch}}) < 0)
        return -1;
    return reorder(q, v, a->accumulate != 0);
}
