/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/kernels.h"
#include "runtime/parallel/naive.h"

#include "runtime/comm/tags.h"

static int collect_gradients(struct plait_mesh *mesh, struct plait_comm *comm,
                             float *grad, float *scratch, size_t n)
{
    int size = plait_comm_size(comm);

    for (int peer = 1; peer < size; peer++)
        if (plait_comm_recv(comm,
                            &(struct plait_buffers){
                                .recv = scratch, .n = n, .type = PLAIT_F32},
                            peer, PLAIT_TAG_GRADIENT, mesh->q, NULL) < 0 ||
            mesh->ops->add(mesh->q, &(struct plait_add){.type = PLAIT_F32,
                                                        .out = grad,
                                                        .a = grad,
                                                        .b = scratch,
                                                        .n = n}) < 0)
            return -1;
    for (int peer = 1; peer < size; peer++)
        if (plait_comm_send(comm,
                            &(struct plait_buffers){
                                .send = grad, .n = n, .type = PLAIT_F32},
                            peer, PLAIT_TAG_GRADIENT_SUM, mesh->q, NULL) < 0)
            return -1;
    return 0;
}

int plait_naive_sum(struct plait_mesh *mesh, struct plait_comm *comm,
                    float *grad, float *scratch, size_t n)
{
    if (plait_comm_rank(comm) == 0)
        return collect_gradients(mesh, comm, grad, scratch, n);
    if (plait_comm_send(
            comm,
            &(struct plait_buffers){.send = grad, .n = n, .type = PLAIT_F32}, 0,
            PLAIT_TAG_GRADIENT, mesh->q, NULL) < 0)
        return -1;
    return plait_comm_recv(
        comm, &(struct plait_buffers){.recv = grad, .n = n, .type = PLAIT_F32},
        0, PLAIT_TAG_GRADIENT_SUM, mesh->q, NULL);
}
