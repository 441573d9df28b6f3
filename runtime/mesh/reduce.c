/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/kernels.h"
#include "runtime/mesh/reduce.h"

/* -- paths --------------------------------------------------------------- */

static void add_step(struct plait_reduction_path *path,
                     enum plait_reduction_op op, struct plait_comm *comm)
{
    if (plait_comm_size(comm) == 1)
        return;
    path->op[path->nsteps] = op;
    path->comm[path->nsteps++] = comm;
}

void plait_reduction_path_whole(struct plait_reduction_path *path,
                                struct plait_comm *comm)
{
    *path = (struct plait_reduction_path){.parts = 1};
    add_step(path, PLAIT_REDUCTION_ALL_REDUCE, comm);
}

void plait_reduction_path_parts(struct plait_reduction_path *path,
                                struct plait_comm *comm,
                                struct plait_comm *replicas)
{
    *path = (struct plait_reduction_path){.parts = plait_comm_size(comm),
                                          .part = plait_comm_rank(comm)};
    add_step(path, PLAIT_REDUCTION_REDUCE_SCATTER, comm);
    if (replicas)
        add_step(path, PLAIT_REDUCTION_ALL_REDUCE, replicas);
}

void plait_reduction_path_hierarchical(struct plait_reduction_path *path,
                                       const struct plait_hierarchy *nodes)
{
    plait_reduction_path_parts(path, nodes->intra_node, nodes->inter_node);
    add_step(path, PLAIT_REDUCTION_ALL_GATHER, nodes->intra_node);
}

void plait_reduction_path_parts_by_node(struct plait_reduction_path *path,
                                        const struct plait_hierarchy *nodes)
{
    int nnodes = plait_comm_size(nodes->inter_node);

    *path = (struct plait_reduction_path){
        .parts = plait_comm_size(nodes->intra_node) * nnodes,
        .part = plait_comm_rank(nodes->intra_node) * nnodes +
                plait_comm_rank(nodes->inter_node)};
    add_step(path, PLAIT_REDUCTION_REDUCE_SCATTER, nodes->intra_node);
    add_step(path, PLAIT_REDUCTION_REDUCE_SCATTER, nodes->inter_node);
}

/* -- reductions ---------------------------------------------------------- */

/* The range that is valid after `steps` steps: n elements, returned, from
 * `begin` on. */
static size_t range_after(const struct plait_reduction *r, int steps,
                          size_t *begin)
{
    size_t n = r->n;

    *begin = 0;
    for (int i = 0; i < steps; i++) {
        const struct plait_comm *comm = r->path->comm[i];

        if (r->path->op[i] == PLAIT_REDUCTION_REDUCE_SCATTER) {
            n /= plait_comm_size(comm);
            *begin += plait_comm_rank(comm) * n;
        } else if (r->path->op[i] == PLAIT_REDUCTION_ALL_GATHER) {
            *begin -= plait_comm_rank(comm) * n;
            n *= plait_comm_size(comm);
        }
    }
    return n;
}

static int start_step(struct plait_mesh *mesh, struct plait_reduction *r)
{
    struct plait_comm *comm = r->path->comm[r->step];
    enum plait_dtype type = r->wire ? PLAIT_BF16_T : PLAIT_F32;
    char *all = r->wire ? r->wire : (void *)r->grad;
    size_t size = plait_dtype_size(type), from, to;
    size_t had = range_after(r, r->step, &from),
           n = range_after(r, r->step + 1, &to);

    switch (r->path->op[r->step]) {
    case PLAIT_REDUCTION_ALL_REDUCE:
        return plait_comm_all_reduce(comm,
                                     &(struct plait_buffers){all + from * size,
                                                             all + to * size, n,
                                                             type},
                                     PLAIT_SUM, mesh->q, &r->req);
    case PLAIT_REDUCTION_REDUCE_SCATTER:
        return plait_comm_reduce_scatter(
            comm,
            &(struct plait_buffers){all + from * size, all + to * size, n,
                                    type},
            PLAIT_SUM, mesh->q, &r->req);
    case PLAIT_REDUCTION_ALL_GATHER:
        return plait_comm_all_gather(comm,
                                     &(struct plait_buffers){all + from * size,
                                                             all + to * size,
                                                             had, type},
                                     mesh->q, &r->req);
    }
    return -1;
}

int plait_reduction_start(struct plait_mesh *mesh, struct plait_reduction *r,
                          const struct plait_reduction_path *path, float *grad,
                          void *wire, size_t n)
{
    *r = (struct plait_reduction){
        .path = path, .grad = grad, .wire = wire, .n = n};
    if (wire &&
        mesh->ops->cast(mesh->q, &(struct plait_cast){.to = PLAIT_BF16_T,
                                                      .from = PLAIT_F32,
                                                      .dst = wire,
                                                      .src = grad,
                                                      .n = n}) < 0)
        return -1;
    return start_step(mesh, r);
}

int plait_reduction_advance(struct plait_mesh *mesh, struct plait_reduction *r)
{
    if (!r->path || r->step + 1 == r->path->nsteps)
        return 0;
    if (plait_comm_wait(&r->req, mesh->q) < 0)
        return -1;
    r->step++;
    return start_step(mesh, r);
}

/* Convert the valid range of the bf16 buffer back to fp32. */
static int unpack_wire(struct plait_mesh *mesh, const struct plait_reduction *r)
{
    size_t at, n = range_after(r, r->path->nsteps, &at);

    return mesh->ops->cast(mesh->q,
                           &(struct plait_cast){.to = PLAIT_F32,
                                                .from = PLAIT_BF16_T,
                                                .dst = r->grad + at,
                                                .src = (uint16_t *)r->wire + at,
                                                .n = n});
}

int plait_reduction_finish(struct plait_mesh *mesh, struct plait_reduction *r)
{
    if (!r->path)
        return 0;
    while (r->step + 1 < r->path->nsteps)
        if (plait_reduction_advance(mesh, r) < 0)
            return -1;
    if (plait_comm_wait(&r->req, mesh->q) < 0 ||
        (r->wire && unpack_wire(mesh, r) < 0))
        return -1;
    r->path = NULL;
    return 0;
}
