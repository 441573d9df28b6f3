/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/dnnl_api.h"

#include <stdlib.h>

#define HOW dnnl_convolution_direct

#if DNNL_VERSION_MAJOR < 3

dnnl_status_t cpu_md_with_strides(cpu_md *md, int n, const dnnl_dims_t dims,
                                  dnnl_data_type_t type,
                                  const dnnl_dims_t strides)
{
    *md = malloc(sizeof(**md));
    return *md ? dnnl_memory_desc_init_by_strides(*md, n, dims, type, strides)
               : dnnl_out_of_memory;
}

dnnl_status_t cpu_md_with_tag(cpu_md *md, int n, const dnnl_dims_t dims,
                              dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    *md = malloc(sizeof(**md));
    return *md ? dnnl_memory_desc_init_by_tag(*md, n, dims, type, tag)
               : dnnl_out_of_memory;
}

void cpu_md_destroy(cpu_md md)
{
    free(md);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

dnnl_status_t cpu_dnnl_matmul_create(dnnl_primitive_desc_t *desc,
                                     dnnl_engine_t engine,
                                     const struct cpu_matmul_mds *m,
                                     dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    dnnl_status_t rc = dnnl_matmul_desc_init(&op, m->a, m->b, m->bias, m->dst);

    return rc == dnnl_success
               ? dnnl_primitive_desc_create(desc, &op, attr, engine, NULL)
               : rc;
}

dnnl_status_t
cpu_dnnl_conv_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                     enum cpu_conv_kind kind, const struct cpu_conv_mds *m,
                     dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t rc;

    if (kind == CPU_CONV_FORWARD)
        rc = dnnl_convolution_forward_desc_init(
            &op, dnnl_forward_training, HOW, m->image, m->weight, NULL,
            m->result, m->stride, m->pad, m->pad);
    else if (kind == CPU_CONV_BACKWARD_INPUT)
        rc = dnnl_convolution_backward_data_desc_init(
            &op, HOW, m->image, m->weight, m->result, m->stride, m->pad,
            m->pad);
    else
        rc = dnnl_convolution_backward_weights_desc_init(
            &op, HOW, m->image, m->weight, NULL, m->result, m->stride, m->pad,
            m->pad);
    if (rc != dnnl_success)
        return rc;
    return dnnl_primitive_desc_create(desc, &op, attr, engine, hint);
}

#else

dnnl_status_t cpu_md_with_strides(cpu_md *md, int n, const dnnl_dims_t dims,
                                  dnnl_data_type_t type,
                                  const dnnl_dims_t strides)
{
    *md = NULL;
    return dnnl_memory_desc_create_with_strides(md, n, dims, type, strides);
}

dnnl_status_t cpu_md_with_tag(cpu_md *md, int n, const dnnl_dims_t dims,
                              dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    *md = NULL;
    return dnnl_memory_desc_create_with_tag(md, n, dims, type, tag);
}

void cpu_md_destroy(cpu_md md)
{
    dnnl_memory_desc_destroy(md);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

dnnl_status_t cpu_dnnl_matmul_create(dnnl_primitive_desc_t *desc,
                                     dnnl_engine_t engine,
                                     const struct cpu_matmul_mds *m,
                                     dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(desc, engine, m->a, m->b, m->bias,
                                             m->dst, attr);
}

dnnl_status_t
cpu_dnnl_conv_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                     enum cpu_conv_kind kind, const struct cpu_conv_mds *m,
                     dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr)
{
    static const dnnl_dims_t dense = {0};

    if (kind == CPU_CONV_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            desc, engine, dnnl_forward_training, HOW, m->image, m->weight, NULL,
            m->result, m->stride, dense, m->pad, m->pad, attr);
    if (kind == CPU_CONV_BACKWARD_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(
            desc, engine, HOW, m->image, m->weight, m->result, m->stride, dense,
            m->pad, m->pad, hint, attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        desc, engine, HOW, m->image, m->weight, NULL, m->result, m->stride,
        dense, m->pad, m->pad, hint, attr);
}

#endif

dnnl_status_t cpu_dnnl_attr_create(dnnl_primitive_attr_t *attr, int accumulate)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t rc = dnnl_primitive_attr_create(attr);

    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(*attr,
                                                     dnnl_scratchpad_mode_user);
    if (rc != dnnl_success || !accumulate)
        return rc;
    rc = dnnl_post_ops_create(&ops);
    if (rc == dnnl_success)
        rc = append_sum(ops);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return rc;
}
