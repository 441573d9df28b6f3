/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/mpi/mpi_transfer.h"

#include "kernels/dtype.h"

/* -- reductions of 16-bit floats ----------------------------------------- */

static float larger_of(float a, float b)
{
    return a > b ? a : b;
}

static void bf16_sum(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;

    (void)type;
    for (int i = 0; i < *len; i++)
        y[i] = plait_bf16_of_f32(plait_f32_of_bf16(x[i]) +
                                 plait_f32_of_bf16(y[i]));
}

static void bf16_max(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;

    (void)type;
    for (int i = 0; i < *len; i++)
        y[i] = plait_bf16_of_f32(
            larger_of(plait_f32_of_bf16(x[i]), plait_f32_of_bf16(y[i])));
}

static void fp16_sum(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;

    (void)type;
    for (int i = 0; i < *len; i++)
        y[i] = plait_fp16_of_f32(plait_f32_of_fp16(x[i]) +
                                 plait_f32_of_fp16(y[i]));
}

static void fp16_max(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = inout;

    (void)type;
    for (int i = 0; i < *len; i++)
        y[i] = plait_fp16_of_f32(
            larger_of(plait_f32_of_fp16(x[i]), plait_f32_of_fp16(y[i])));
}

void plait_mpi_ops_create(struct plait_mpi_ops *ops)
{
    MPI_Op_create(bf16_sum, 1, &ops->op[PLAIT_MPI_BF16_SUM]);
    MPI_Op_create(bf16_max, 1, &ops->op[PLAIT_MPI_BF16_MAX]);
    MPI_Op_create(fp16_sum, 1, &ops->op[PLAIT_MPI_FP16_SUM]);
    MPI_Op_create(fp16_max, 1, &ops->op[PLAIT_MPI_FP16_MAX]);
}

void plait_mpi_ops_free(struct plait_mpi_ops *ops)
{
    for (int i = 0; i < PLAIT_MPI_NOPS; i++)
        MPI_Op_free(&ops->op[i]);
}

/* -- calls --------------------------------------------------------------- */

static MPI_Datatype mpi_type(enum plait_dtype type)
{
    switch (type) {
    case PLAIT_F32:
        return MPI_FLOAT;
    case PLAIT_I32:
        return MPI_INT32_T;
    case PLAIT_F64:
        return MPI_DOUBLE;
    default:
        return MPI_UINT16_T;
    }
}

static MPI_Op mpi_op(const struct plait_mpi_ops *ops,
                     const struct plait_transfer *t)
{
    int max = t->op == PLAIT_MAX;

    switch (t->type) {
    case PLAIT_BF16_T:
        return ops->op[max ? PLAIT_MPI_BF16_MAX : PLAIT_MPI_BF16_SUM];
    case PLAIT_FP16_T:
        return ops->op[max ? PLAIT_MPI_FP16_MAX : PLAIT_MPI_FP16_SUM];
    default:
        return max ? MPI_MAX : MPI_SUM;
    }
}

/* Only the blocking calls have MPI's tuned algorithms. */
static int run_blocking(MPI_Comm comm, const struct plait_mpi_ops *ops,
                        const struct plait_transfer *t)
{
    MPI_Datatype type = mpi_type(t->type);
    const void *send = t->send;
    int n = t->n;

    switch (t->kind) {
    case PLAIT_ALL_REDUCE:
        return MPI_Allreduce(send == t->recv ? MPI_IN_PLACE : send, t->recv, n,
                             type, mpi_op(ops, t), comm);
    case PLAIT_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(send, t->recv, n, type, mpi_op(ops, t),
                                        comm);
    case PLAIT_ALL_GATHER:
        return MPI_Allgather(send ? send : MPI_IN_PLACE, n, type, t->recv, n,
                             type, comm);
    case PLAIT_BROADCAST:
        return MPI_Bcast(t->recv, n, type, t->peer, comm);
    case PLAIT_SEND:
        return MPI_Send(send, n, type, t->peer, t->tag, comm);
    case PLAIT_RECV:
        return MPI_Recv(t->recv, n, type, t->peer, t->tag, comm,
                        MPI_STATUS_IGNORE);
    }
    return MPI_ERR_OTHER;
}

static int run_nonblocking(MPI_Comm comm, const struct plait_mpi_ops *ops,
                           const struct plait_transfer *t, MPI_Request *r)
{
    MPI_Datatype type = mpi_type(t->type);
    const void *send = t->send;
    int n = t->n;

    switch (t->kind) {
    case PLAIT_ALL_REDUCE:
        return MPI_Iallreduce(send == t->recv ? MPI_IN_PLACE : send, t->recv, n,
                              type, mpi_op(ops, t), comm, r);
    case PLAIT_REDUCE_SCATTER:
        return MPI_Ireduce_scatter_block(send, t->recv, n, type, mpi_op(ops, t),
                                         comm, r);
    case PLAIT_ALL_GATHER:
        return MPI_Iallgather(send ? send : MPI_IN_PLACE, n, type, t->recv, n,
                              type, comm, r);
    case PLAIT_BROADCAST:
        return MPI_Ibcast(t->recv, n, type, t->peer, comm, r);
    case PLAIT_SEND:
        return MPI_Isend(send, n, type, t->peer, t->tag, comm, r);
    case PLAIT_RECV:
        return MPI_Irecv(t->recv, n, type, t->peer, t->tag, comm, r);
    }
    return MPI_ERR_OTHER;
}

int plait_mpi_transfer(MPI_Comm comm, const struct plait_mpi_ops *ops,
                       const struct plait_transfer *t, MPI_Request *r)
{
    return r ? run_nonblocking(comm, ops, t, r) : run_blocking(comm, ops, t);
}

bool plait_mpi_in_place(const struct plait_comm *comm,
                        const struct plait_transfer *t)
{
    size_t shift = comm->rank * t->n * plait_dtype_size(t->type);

    switch (t->kind) {
    case PLAIT_REDUCE_SCATTER:
        return t->recv == (const char *)t->send + shift;
    case PLAIT_ALL_GATHER:
        return t->send == (const char *)t->recv + shift;
    default:
        return t->send == t->recv;
    }
}
