/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/tensor.h"

int plait_tensor_spread(const struct plait_tensor_parallel *tp, const void *x,
                        void *full, size_t n, const void **out,
                        struct plait_request **req)
{
    size_t size = plait_comm_size(tp->group);

    if (req)
        *req = NULL;
    if (size == 1 || !tp->sequence) {
        *out = x;
        return 0;
    }
    if (plait_comm_all_gather(tp->group, x, full, n / size, tp->type, tp->q,
                              req) < 0)
        return -1;
    *out = full;
    return 0;
}

int plait_tensor_reduce(const struct plait_tensor_parallel *tp, void *part,
                        void *local, size_t n, void **out,
                        struct plait_request **req)
{
    size_t size = plait_comm_size(tp->group);

    if (req)
        *req = NULL;
    if (size > 1 && tp->sequence) {
        if (plait_comm_reduce_scatter(tp->group, part, local, n / size,
                                      tp->type, PLAIT_SUM, tp->q, req) < 0)
            return -1;
        *out = local;
        return 0;
    }
    if (size > 1 && plait_comm_all_reduce(tp->group, part, part, n, tp->type,
                                          PLAIT_SUM, tp->q, req) < 0)
        return -1;
    *out = part;
    return 0;
}
