/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_DNNL_API_H
#define PLAIT_KERNELS_CPU_DNNL_API_H

#include <oneapi/dnnl/dnnl.h>

/* What differs between the releases 2 and 3 of oneDNN. Distributions have
 * either: a description of memory is a struct in release 2 and a pointer in
 * release 3, and primitives are described in two steps or in one. */

#if DNNL_VERSION_MAJOR < 3
typedef dnnl_memory_desc_t *cpu_md;
typedef const dnnl_memory_desc_t *cpu_const_md;
#else
typedef dnnl_memory_desc_t cpu_md;
typedef const_dnnl_memory_desc_t cpu_const_md;
#endif

/* Memory of n dimensions. The caller destroys *md, also after an error. */
dnnl_status_t cpu_md_with_strides(cpu_md *md, int n, const dnnl_dims_t dims,
                                  dnnl_data_type_t type,
                                  const dnnl_dims_t strides);
dnnl_status_t cpu_md_with_tag(cpu_md *md, int n, const dnnl_dims_t dims,
                              dnnl_data_type_t type, dnnl_format_tag_t tag);
/* NULL-safe. */
void cpu_md_destroy(cpu_md md);

/* Attributes of a primitive whose scratchpad the caller provides; with
 * accumulate it adds its result to the old values. The caller destroys *attr,
 * also after an error. */
dnnl_status_t cpu_dnnl_attr_create(dnnl_primitive_attr_t *attr, int accumulate);

/* dst = a * b + bias; bias may be NULL. The caller destroys *desc. */
struct cpu_matmul_mds {
    cpu_const_md dst, a, b, bias;
};
dnnl_status_t cpu_dnnl_matmul_create(dnnl_primitive_desc_t *desc,
                                     dnnl_engine_t engine,
                                     const struct cpu_matmul_mds *m,
                                     dnnl_primitive_attr_t attr);

enum cpu_conv_kind {
    CPU_CONV_FORWARD,
    CPU_CONV_BACKWARD_INPUT,
    CPU_CONV_BACKWARD_WEIGHT
};

/* Direct convolutions without bias. Of a backward, image or weight is the
 * gradient that is computed, and `hint` is the forward. The caller destroys
 * *desc. */
struct cpu_conv_mds {
    cpu_const_md image, weight, result;
    const dnnl_dim_t *stride, *pad; /* down and across */
};
dnnl_status_t
cpu_dnnl_conv_create(dnnl_primitive_desc_t *desc, dnnl_engine_t engine,
                     enum cpu_conv_kind kind, const struct cpu_conv_mds *m,
                     dnnl_primitive_desc_t hint, dnnl_primitive_attr_t attr);

#endif
