/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/naive.h"

enum { TO_FIRST, TO_OTHERS }; /* tags */

static int collect(struct plait_parallel *par, struct plait_comm *comm,
                   float *grad, float *scratch, size_t n)
{
    int size = plait_comm_size(comm), peer;

    for (peer = 1; peer < size; peer++)
        if (plait_comm_recv(comm, scratch, n, PLAIT_F32, peer, TO_FIRST, par->q,
                            NULL) < 0 ||
            par->ops->add(par->q, PLAIT_F32, grad, grad, scratch, n) < 0)
            return -1;
    for (peer = 1; peer < size; peer++)
        if (plait_comm_send(comm, grad, n, PLAIT_F32, peer, TO_OTHERS, par->q,
                            NULL) < 0)
            return -1;
    return 0;
}

int plait_naive_sum(struct plait_parallel *par, struct plait_comm *comm,
                    float *grad, float *scratch, size_t n)
{
    if (plait_comm_rank(comm) == 0)
        return collect(par, comm, grad, scratch, n);
    if (plait_comm_send(comm, grad, n, PLAIT_F32, 0, TO_FIRST, par->q, NULL) <
        0)
        return -1;
    return plait_comm_recv(comm, grad, n, PLAIT_F32, 0, TO_OTHERS, par->q,
                           NULL);
}
