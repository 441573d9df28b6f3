/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/reduce.h"

/* -- routes -------------------------------------------------------------- */

static void add_leg(struct plait_route *route, enum plait_leg leg,
                    struct plait_comm *comm)
{
    if (plait_comm_size(comm) == 1)
        return;
    route->leg[route->n] = leg;
    route->comm[route->n++] = comm;
}

void plait_route_whole(struct plait_route *route, struct plait_comm *comm)
{
    *route = (struct plait_route){.parts = 1};
    add_leg(route, PLAIT_LEG_SUM, comm);
}

void plait_route_parts(struct plait_route *route, struct plait_comm *comm,
                       struct plait_comm *replicas)
{
    *route = (struct plait_route){.parts = plait_comm_size(comm),
                                  .part = plait_comm_rank(comm)};
    add_leg(route, PLAIT_LEG_SCATTER, comm);
    if (replicas)
        add_leg(route, PLAIT_LEG_SUM, replicas);
}

void plait_route_hierarchical(struct plait_route *route,
                              const struct plait_nodewise *nodes)
{
    plait_route_parts(route, nodes->inside, nodes->across);
    add_leg(route, PLAIT_LEG_GATHER, nodes->inside);
}

void plait_route_parts_by_node(struct plait_route *route,
                               const struct plait_nodewise *nodes)
{
    int across = plait_comm_size(nodes->across);

    *route =
        (struct plait_route){.parts = plait_comm_size(nodes->inside) * across,
                             .part = plait_comm_rank(nodes->inside) * across +
                                     plait_comm_rank(nodes->across)};
    add_leg(route, PLAIT_LEG_SCATTER, nodes->inside);
    add_leg(route, PLAIT_LEG_SCATTER, nodes->across);
}

/* -- reductions ---------------------------------------------------------- */

/* What the first `legs` legs leave: n elements from `begin` on. */
static size_t left_by(const struct plait_reduction *r, int legs, size_t *begin)
{
    size_t n = r->n;

    *begin = 0;
    for (int i = 0; i < legs; i++) {
        const struct plait_comm *comm = r->route->comm[i];

        if (r->route->leg[i] == PLAIT_LEG_SCATTER) {
            n /= plait_comm_size(comm);
            *begin += plait_comm_rank(comm) * n;
        } else if (r->route->leg[i] == PLAIT_LEG_GATHER) {
            *begin -= plait_comm_rank(comm) * n;
            n *= plait_comm_size(comm);
        }
    }
    return n;
}

static int start_leg(struct plait_parallel *par, struct plait_reduction *r)
{
    struct plait_comm *comm = r->route->comm[r->leg];
    enum plait_dtype type = r->wire ? PLAIT_BF16_T : PLAIT_F32;
    char *all = r->wire ? r->wire : (void *)r->grad;
    size_t size = plait_dtype_size(type), from, to;
    size_t had = left_by(r, r->leg, &from), n = left_by(r, r->leg + 1, &to);

    switch (r->route->leg[r->leg]) {
    case PLAIT_LEG_SUM:
        return plait_comm_all_reduce(comm, all + from * size, all + to * size,
                                     n, type, PLAIT_SUM, par->q, &r->req);
    case PLAIT_LEG_SCATTER:
        return plait_comm_reduce_scatter(comm, all + from * size,
                                         all + to * size, n, type, PLAIT_SUM,
                                         par->q, &r->req);
    case PLAIT_LEG_GATHER:
        return plait_comm_all_gather(comm, all + from * size, all + to * size,
                                     had, type, par->q, &r->req);
    }
    return -1;
}

int plait_reduction_start(struct plait_parallel *par, struct plait_reduction *r,
                          const struct plait_route *route, float *grad,
                          void *wire, size_t n)
{
    *r = (struct plait_reduction){
        .route = route, .grad = grad, .wire = wire, .n = n};
    if (wire &&
        par->ops->cast(par->q, PLAIT_BF16_T, wire, PLAIT_F32, grad, n) < 0)
        return -1;
    return start_leg(par, r);
}

int plait_reduction_advance(struct plait_parallel *par,
                            struct plait_reduction *r)
{
    if (!r->route || r->leg + 1 == r->route->n)
        return 0;
    if (plait_comm_wait(&r->req, par->q) < 0)
        return -1;
    r->leg++;
    return start_leg(par, r);
}

/* What the last leg left on the wire, back to where it is wanted. */
static int unload(struct plait_parallel *par, const struct plait_reduction *r)
{
    size_t at, n = left_by(r, r->route->n, &at);

    return par->ops->cast(par->q, PLAIT_F32, r->grad + at, PLAIT_BF16_T,
                          (uint16_t *)r->wire + at, n);
}

int plait_reduction_finish(struct plait_parallel *par,
                           struct plait_reduction *r)
{
    if (!r->route)
        return 0;
    while (r->leg + 1 < r->route->n)
        if (plait_reduction_advance(par, r) < 0)
            return -1;
    if (plait_comm_wait(&r->req, par->q) < 0 || (r->wire && unload(par, r) < 0))
        return -1;
    r->route = NULL;
    return 0;
}
