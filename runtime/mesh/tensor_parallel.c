/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/mesh/tensor_parallel.h"

/* Element `i` of an array of type tp->type. */
static void *element_at(const struct plait_tensor_parallel *tp, const void *p,
                        size_t i)
{
    return (char *)p + i * plait_dtype_size(tp->type);
}

static bool is_scattered(const struct plait_tensor_parallel *tp)
{
    return tp->sequence && plait_comm_size(tp->group) > 1;
}

int plait_tp_all_gather(const struct plait_tensor_parallel *tp, const void *x,
                        void *full, size_t n, const void **out,
                        struct plait_request *req[PLAIT_TP_CHUNKS_MOST])
{
    size_t all = n / tp->chunks, mine = all / plait_comm_size(tp->group);

    for (int i = 0; req && i < PLAIT_TP_CHUNKS_MOST; i++)
        req[i] = NULL;
    *out = x;
    if (!is_scattered(tp))
        return 0;
    for (int i = 0; i < tp->chunks; i++)
        if (plait_comm_all_gather(
                tp->group,
                &(struct plait_buffers){element_at(tp, x, i * mine),
                                        element_at(tp, full, i * all), mine,
                                        tp->type},
                tp->q, req ? &req[i] : NULL) < 0)
            return -1;
    *out = full;
    return 0;
}

static int reduce_chunk(const struct plait_tensor_parallel *tp, int i,
                        void *part, void *local, size_t n,
                        struct plait_request **req)
{
    size_t size = plait_comm_size(tp->group), all = n / tp->chunks;
    void *chunk = element_at(tp, part, i * all);

    if (size == 1)
        return 0;
    if (is_scattered(tp))
        return plait_comm_reduce_scatter(
            tp->group,
            &(struct plait_buffers){chunk,
                                    element_at(tp, local, i * (all / size)),
                                    all / size, tp->type},
            PLAIT_SUM, tp->q, req);
    return plait_comm_all_reduce(
        tp->group, &(struct plait_buffers){chunk, chunk, all, tp->type},
        PLAIT_SUM, tp->q, req);
}

void *plait_tp_reduce_output(const struct plait_tensor_parallel *tp, void *part,
                             void *local)
{
    return is_scattered(tp) ? local : part;
}

int plait_tp_reduce(const struct plait_tensor_parallel *tp, void *part,
                    void *local, size_t n, void **out)
{
    for (int i = 0; i < tp->chunks; i++)
        if (reduce_chunk(tp, i, part, local, n, NULL) < 0)
            return -1;
    *out = plait_tp_reduce_output(tp, part, local);
    return 0;
}

int plait_tp_reduce_chunk(const struct plait_tensor_parallel *tp, int i,
                          void *part, void *local, size_t n,
                          struct plait_request **req)
{
    *req = NULL;
    return reduce_chunk(tp, i, part, local, n, req);
}

int plait_tp_wait(const struct plait_tensor_parallel *tp,
                  struct plait_request *req[PLAIT_TP_CHUNKS_MOST])
{
    for (int i = 0; i < tp->chunks; i++)
        if (plait_comm_wait(&req[i], tp->q) < 0)
            return -1;
    return 0;
}
