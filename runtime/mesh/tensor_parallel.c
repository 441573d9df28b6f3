/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/parallel/tensor.h"

/* Element `i` of an array of the stream's type. */
static void *at(const struct plait_tensor_parallel *tp, const void *p, size_t i)
{
    return (char *)p + i * plait_dtype_size(tp->type);
}

static bool scattered(const struct plait_tensor_parallel *tp)
{
    return tp->sequence && plait_comm_size(tp->group) > 1;
}

int plait_tensor_spread(const struct plait_tensor_parallel *tp, const void *x,
                        void *full, size_t n, const void **out,
                        struct plait_request *req[PLAIT_TENSOR_CHUNKS])
{
    size_t all = n / tp->chunks, mine = all / plait_comm_size(tp->group);

    for (int i = 0; req && i < PLAIT_TENSOR_CHUNKS; i++)
        req[i] = NULL;
    *out = x;
    if (!scattered(tp))
        return 0;
    for (int i = 0; i < tp->chunks; i++)
        if (plait_comm_all_gather(tp->group, at(tp, x, i * mine),
                                  at(tp, full, i * all), mine, tp->type, tp->q,
                                  req ? &req[i] : NULL) < 0)
            return -1;
    *out = full;
    return 0;
}

static int reduce_chunk(const struct plait_tensor_parallel *tp, int i,
                        void *part, void *local, size_t n,
                        struct plait_request **req)
{
    size_t size = plait_comm_size(tp->group), all = n / tp->chunks;
    void *chunk = at(tp, part, i * all);

    if (size == 1)
        return 0;
    if (scattered(tp))
        return plait_comm_reduce_scatter(
            tp->group, chunk, at(tp, local, i * (all / size)), all / size,
            tp->type, PLAIT_SUM, tp->q, req);
    return plait_comm_all_reduce(tp->group, chunk, chunk, all, tp->type,
                                 PLAIT_SUM, tp->q, req);
}

void *plait_tensor_sum(const struct plait_tensor_parallel *tp, void *part,
                       void *local)
{
    return scattered(tp) ? local : part;
}

int plait_tensor_reduce(const struct plait_tensor_parallel *tp, void *part,
                        void *local, size_t n, void **out)
{
    for (int i = 0; i < tp->chunks; i++)
        if (reduce_chunk(tp, i, part, local, n, NULL) < 0)
            return -1;
    *out = plait_tensor_sum(tp, part, local);
    return 0;
}

int plait_tensor_reduce_chunk(const struct plait_tensor_parallel *tp, int i,
                              void *part, void *local, size_t n,
                              struct plait_request **req)
{
    *req = NULL;
    return reduce_chunk(tp, i, part, local, n, req);
}

int plait_tensor_wait(const struct plait_tensor_parallel *tp,
                      struct plait_request *req[PLAIT_TENSOR_CHUNKS])
{
    for (int i = 0; i < tp->chunks; i++)
        if (plait_comm_wait(&req[i], tp->q) < 0)
            return -1;
    return 0;
}
