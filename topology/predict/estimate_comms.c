/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL's communicators take of a GPU's memory. The sizes are those of NCCL
 * 2.18 to 2.28 (src/init.cc, src/transport/p2p.cc, net.cc, nvls.cc), the
 * numbers of channels those that it logs on such machines:
 *
 *   sums in a domain   for each channel a ring, and half as many connections
 *                      again for trees where there are more than two ranks
 *   sums beyond it     for each channel the network's part of a ring and a
 *                      tree, which the ranks in a domain share
 *   by NVSwitches      for each channel two buffers of each rank
 *   messages           for each channel a connection with each peer in the
 *                      domain; for all peers beyond it a pool
 *
 * NCCL 2.22 and later connect at the first use, so that a communicator has the
 * buffers of what it does alone. Earlier ones also have a pool of 256 MiB for
 * messages in each, which is not counted. tests/unit/test_communicators.c
 * compares with what others have measured. */
#include "topology/predict/estimate_comms.h"

#include <math.h>

#include "topology/job/sync.h"
#include "topology/predict/estimate_pieces.h"

#define MIB 1048576.0
/* A receiver has 0.5, 4.7 and 4 MiB for the three protocols, a sender little
 * more than a counter, each in whole mappings of 2 MiB. */
#define CONNECTION (12 * MIB)
/* Through a NIC both have buffers. */
#define NET_CONNECTION (20 * MIB)
#define TREES 0.5
/* 16 steps of 128 KiB for each of 16 channels, both ways. */
#define POOL (64 * MIB)
#define SWITCHED_BUFFER (1 * MIB)
#define SWITCHED_RANKS 32 /* NCCL_MAX_NVLS_ARITY */
/* Of groups that leave a domain: channels of sums, at most and for each rank in
 * the domain. */
#define FAR_CHANNELS 16
#define NIC_CHANNELS 4

static double message_channels(const struct plait_gpu_type *gpu)
{
    return gpu->channels >= 24 ? 32 : gpu->channels;
}

/* What NCCL takes of NVSwitches (nvls.cc): on Blackwell 32 where a group goes
 * beyond its node or NVLink domain. */
static double switched_channels(const struct plait_gpu_type *gpu,
                                double domains)
{
    return gpu->sm >= 100 && gpu->switched > 0 && domains > 1 ? 32
                                                              : gpu->switched;
}

static double at_most(double channels, double most)
{
    return most > 0 ? fmin(channels, most) : channels;
}

static double message_bytes(const struct plait_gpu_type *gpu,
                            const struct plait_comm_group *g)
{
    if (g->ranks <= g->inside)
        return g->peers * at_most(message_channels(gpu), g->channels) *
               CONNECTION;
    return g->peers * PLAIT_PEER_CTAS * CONNECTION + POOL;
}

static double sum_bytes(const struct plait_gpu_type *gpu,
                        const struct plait_comm_group *g)
{
    double domains = ceil(g->ranks / g->inside), near = 0, far = 0, buffers = 0;
    double channels = domains > 1 ? fmin(FAR_CHANNELS, NIC_CHANNELS * g->inside)
                                  : gpu->channels;
    double switched = switched_channels(gpu, domains);

    if (g->inside > 1)
        near = domains > 1 ? (g->inside - 1) / g->inside : 1;
    if (g->inside > 2) {
        near += TREES;
        if (switched > 0 && g->switched > 0)
            switched = g->switched;
        buffers = at_most(switched, g->channels) * 2 *
                  fmin(g->inside, SWITCHED_RANKS) * SWITCHED_BUFFER;
    }
    if (domains > 1)
        far = (1 + 2 * (domains - 1) / domains) / g->inside;
    return at_most(channels, g->channels) *
               (near * CONNECTION + far * NET_CONNECTION) +
           buffers;
}

double plait_comm_group_bytes(const struct plait_gpu_type *gpu,
                              const struct plait_comm_group *group)
{
    if (group->ranks < 2)
        return 0;
    return group->messages ? message_bytes(gpu, group) : sum_bytes(gpu, group);
}

/* -- those of a layout: runtime/mesh/mesh.c and open_mesh() of session.c --- */

/* A group of ranks that are `stride` apart. */
static struct plait_comm_group group(const struct plait_shape *s, double stride,
                                     double ranks)
{
    double inside = fmax(1, floor(s->gpu->domain / stride));

    return (struct plait_comm_group){.ranks = ranks,
                                     .inside = fmin(ranks, inside)};
}

static double sums(const struct plait_shape *s, double stride, double ranks)
{
    struct plait_comm_group g = group(s, stride, ranks);

    g.channels = PLAIT_LIMITED_CTAS;
    return plait_comm_group_bytes(s->gpu, &g);
}

static double tensor_sums(const struct plait_shape *s)
{
    struct plait_comm_group g =
        group(s, plait_pieces_stride(s->layout, PLAIT_TP), s->tp);

    if (g.ranks <= g.inside)
        g.switched = PLAIT_TENSOR_NVLS_CTAS;
    return plait_comm_group_bytes(s->gpu, &g);
}

/* Sums of ranks that hold the same weights: of all, and where nodes have
 * several of them, inside and across. */
static double replica_sums(const struct plait_shape *s, double stride,
                           double ranks)
{
    const struct plait_parallel_config *p = &s->c->parallel;
    double inside = group(s, stride, ranks).inside, sum;

    sum = sums(s, stride, ranks);
    if (p->shard_group == PLAIT_SHARD_ALL &&
        (p->all_reduce == PLAIT_ALL_REDUCE_FLAT ||
         p->grad_sync == PLAIT_GRAD_NAIVE))
        return sum;
    if (p->shard_group == PLAIT_SHARD_NODE)
        inside = fmin(inside, fmax(1, floor(s->gpu->per_node / stride)));
    if (inside <= 1 || inside >= ranks || fmod(ranks, inside) > 0)
        return sum;
    return sum + sums(s, stride, inside) +
           sums(s, stride * inside, ranks / inside);
}

/* Both neighbours of a pipeline; its ends have one, as chunks do not go on
 * there. */
static double stage_messages(const struct plait_shape *s, int stage)
{
    struct plait_comm_group g =
        group(s, plait_pieces_stride(s->layout, PLAIT_PP), s->pp);
    bool end = s->v == 1 && (stage == 0 || stage == s->pp - 1);

    g.messages = true;
    g.channels = PLAIT_LIMITED_CTAS;
    g.peers = fmin(g.inside - 1, end ? 1 : 2);
    return plait_comm_group_bytes(s->gpu, &g);
}

/* A ring's neighbours: sending to one and receiving from the other count as one
 * connection. Experts exchange tokens with all ranks of their group. */
static double exchange(const struct plait_shape *s, double stride, double ranks,
                       double peers)
{
    struct plait_comm_group g = group(s, stride, ranks);

    g.messages = true;
    g.peers = fmin(g.inside - 1, peers);
    return plait_comm_group_bytes(s->gpu, &g);
}

/* Both ends of a pipeline sum the gradient of an embedding that they share. */
static double end_sums(const struct plait_shape *s, int stage)
{
    double stride = plait_pieces_stride(s->layout, PLAIT_PP);
    bool near = stride * s->pp <= s->gpu->domain;
    const struct plait_comm_group g = {
        .ranks = 2, .inside = near ? 2 : 1, .channels = PLAIT_LIMITED_CTAS};

    if (!plait_model_shares_table(s->m) || (stage > 0 && stage < s->pp - 1))
        return 0;
    return plait_comm_group_bytes(s->gpu, &g);
}

static double expert_groups(const struct plait_shape *s, double stride)
{
    double copies = (double)s->dp * s->cp / s->ep;

    if (!s->m->experts)
        return 0;
    return exchange(s, stride, s->ep, s->ep) +
           replica_sums(s, stride * s->ep, copies);
}

double plait_shape_communicators(const struct plait_shape *s, int stage)
{
    double stride = fmin(plait_pieces_stride(s->layout, PLAIT_CP),
                         plait_pieces_stride(s->layout, PLAIT_DP));
    struct plait_comm_group world = group(s, 1, plait_layout_world(s->layout));
    double sum;

    if (s->gpu->cores > 0)
        return 0;
    sum = plait_comm_group_bytes(s->gpu, &world) + tensor_sums(s);
    sum += exchange(s, plait_pieces_stride(s->layout, PLAIT_CP), s->cp, 1);
    sum += replica_sums(s, stride, (double)s->dp * s->cp);
    sum += expert_groups(s, stride);
    if (plait_sync_parts(&s->c->sync))
        sum += sums(s, plait_pieces_stride(s->layout, PLAIT_DP), s->dp);
    if (s->pp > 1)
        sum += stage_messages(s, stage) + end_sums(s, stage);
    return sum;
}
