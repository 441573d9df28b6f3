/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_DNNL_ATTR_H
#define PLAIT_KERNELS_CPU_DNNL_ATTR_H

#include <oneapi/dnnl/dnnl.h>

/* Attributes of a primitive whose scratchpad the caller provides; with
 * accumulate it adds its result to the old values. The caller destroys *attr,
 * also after an error. */
dnnl_status_t cpu_dnnl_attr_create(dnnl_primitive_attr_t *attr, int accumulate);

#endif
