/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/dnnl_attr.h"

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
        rc = dnnl_post_ops_append_sum(ops, 1);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return rc;
}
