/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/predict/estimate_pieces.h"

#include <math.h>
#include <string.h>

#include "topology/job/recorded.h"
#include "topology/plan/cost.h"
#include "topology/predict/scale.h"

/* NCCL_SHARE: the share of its NIC that an all-to-all of NCCL reaches among
 * many nodes. DISPATCH_HIDDEN: the share of it that is hidden where
 * micro-batches alternate. Fitted together to the two fitted rows of
 * tests/records that have both. */
#define NCCL_SHARE 0.6
#define DISPATCH_HIDDEN 0.5
/* How many times more launches a layer has where micro-batches alternate. */
#define TURNS 2

/* The link that a group of n ranks, `stride` apart, has for its rings: that of
 * GPUs in the same domain if the group fits there, else a share of the NICs for
 * each of the rings that leave a domain together. */
struct path {
    double alpha, bandwidth;
    double ring; /* latency of one round: few of its steps leave a domain */
    double inside, across; /* ranks in one domain, domains */
};

/* By how much rings of ranks `stride` apart slow down that go beyond a leaf
 * switch, when all rings of a leaf do so at once: with topology placement each
 * crosses it once, `stride` of them or at least a domain's NICs, on uplinks
 * that have 1 / oversubscription of the leaf's bandwidth. */
static double congestion(const struct plait_shape *s, double stride, double n)
{
    const struct plait_gpu_type *g = s->gpu;
    double rings = fmax(stride, g->domain);

    if (g->leaf_gpus <= 0 || stride * n <= g->leaf_gpus)
        return 1;
    return fmax(1, g->oversubscription * fmin(1, rings / g->leaf_gpus));
}

/* For messages between two of them. */
static struct path link_of(const struct plait_shape *s, int stride, int n)
{
    const struct plait_gpu_type *g = s->gpu;
    double inside = g->domain / stride, across;
    struct path p;

    if ((double)stride * n <= g->domain)
        return (struct path){g->link_alpha, g->link_bw, (n - 1) * g->link_alpha,
                             n, 1};
    inside = p.inside = inside < 1 ? 1 : inside;
    across = p.across = ceil(n / inside);
    p.alpha = g->nic_alpha;
    p.bandwidth =
        fmin(g->nic_bw * inside / congestion(s, stride, n), g->link_bw);
    p.ring = across * g->nic_alpha + (n - across) * g->link_alpha;
    return p;
}

/* For collectives of all of them. */
static struct path path_of(const struct plait_shape *s, int stride, int n)
{
    struct path p = link_of(s, stride, n);
    double nodes = (double)stride * n / s->gpu->domain;

    if (p.across > 1)
        p.bandwidth /= plait_scale_crowded(s->gpu, nodes);
    return p;
}

int plait_pieces_stride(const struct plait_layout *layout, enum plait_axis axis)
{
    int stride = 1;

    for (int i = 0; layout->order[i] != axis; i++)
        if (layout->order[i] != PLAIT_EP)
            stride *= layout->size[layout->order[i]];
    return stride;
}

/* Set the traffic of a layer and micro-batch along an axis; `ahead` of its
 * calls are in the forward pass. */
static void set_axis(const struct plait_shape *s, struct plait_pieces *p,
                     enum plait_axis axis, double ahead, double seconds)
{
    double layers = (double)s->m->layers / s->pp * s->microbatches;
    double calls = p->traffic.calls[axis] / layers;

    p->forward[axis] = calls > 0 ? ahead * seconds : 0;
    p->backward[axis] = calls > 0 ? (calls - ahead) * seconds : 0;
}

/* Keys and values are sent around the ring while the scores of those before are
 * computed. */
static double ring_seconds(const struct plait_shape *s,
                           const struct plait_pieces *p)
{
    struct path cp =
        path_of(s, plait_pieces_stride(s->layout, PLAIT_CP), s->cp);
    double seconds;

    if (s->cp < 2)
        return 0;
    seconds = (s->cp - 1) * plait_cost_message(p->traffic.bytes[PLAIT_CP],
                                               cp.alpha, cp.bandwidth);
    if (s->traits->cp_hidden)
        seconds = fmax(0, seconds - p->work.attention * (s->cp - 1) / s->cp);
    return seconds;
}

/* Bytes of an all-to-all that leave a domain, where each token goes to `k`
 * experts in any of n / inside domains. */
static double leaving(const struct plait_shape *s, double bytes, double n,
                      double inside)
{
    double domains = n / inside, k = s->m->experts_top_k;

    if (!s->traits->sends_once || s->c->dispatch == PLAIT_DISPATCH_ALLTOALL)
        return (n - inside) / n * bytes / NCCL_SHARE;
    return bytes / k * (domains - 1) * (1 - pow(1 - 1 / domains, k));
}

/* The same as congestion() for an all-to-all, of which all but a leaf's share
 * goes up. */
static double upward(const struct plait_shape *s, double n)
{
    const struct plait_gpu_type *g = s->gpu;
    double stride = plait_pieces_stride(s->layout, PLAIT_CP);
    double inside = fmax(1, g->leaf_gpus / stride);

    if (g->leaf_gpus <= 0 || n <= inside)
        return 1;
    return fmax(1, g->oversubscription * (n - inside) / n);
}

/* Each rank sends a piece to each other: to those in the same domain over its
 * links, to the others through its own share of the NICs, both at once. */
static double alltoall_seconds(const struct plait_shape *s, double bytes)
{
    const struct plait_gpu_type *g = s->gpu;
    double n = s->ep, seconds;
    double inside = fmax(
        1, floor((double)g->domain / plait_pieces_stride(s->layout, PLAIT_CP)));

    if (n < 2)
        return 0;
    inside = fmin(n, inside);
    seconds = (n - inside) / inside * g->nic_alpha +
              (inside - 1) * g->link_alpha +
              fmax((inside - 1) / n * bytes / g->link_bw,
                   leaving(s, bytes, n, inside) / g->nic_bw * upward(s, n));
    return seconds * (s->c->dispatch_hidden ? 1 - DISPATCH_HIDDEN : 1);
}

/* One norm over all heads sums the squares of its rows over the tp ranks, for q
 * and for k: as often as a layer sums its rows. */
static double norm_seconds(const struct plait_shape *s, const struct path *tp)
{
    return s->m->qk_norm && s->m->qk_norm_whole
               ? plait_cost_allreduce(s->tp, sizeof(float) * s->tokens,
                                      tp->alpha, tp->bandwidth)
               : 0;
}

/* The gradients of the latents' matrices and norms, of which each tp rank has
 * some terms: plait-train sums them in fp32 before data-parallel ranks do, with
 * ZeRO 2 and 3 for each micro-batch, else once a step. */
static double latent_seconds(const struct plait_shape *s, const struct path *tp)
{
    const struct plait_model_config *m = s->m;
    const double counts[] = {(double)m->hidden * m->mla_q,
                             (double)m->hidden * (m->mla_kv + m->mla_rope),
                             m->mla_q, m->mla_kv};
    double sum = 0;

    if (!m->mla_kv || s->c->framework != PLAIT_FRAMEWORK_PLAIT)
        return 0;
    for (int i = 0; i < 4; i++)
        if (counts[i] > 0)
            sum += plait_cost_allreduce(s->tp, sizeof(float) * counts[i],
                                        tp->alpha, tp->bandwidth);
    return s->c->parallel.zero >= 2 ? sum : sum / s->microbatches;
}

static void set_traffic(const struct plait_shape *s, struct plait_pieces *p)
{
    const struct plait_layout *l = s->layout;
    const struct plait_traffic *t = &p->traffic;
    struct path tp = path_of(s, plait_pieces_stride(l, PLAIT_TP), s->tp);
    struct path pp = link_of(s, plait_pieces_stride(l, PLAIT_PP), s->pp);

    set_axis(s, p, PLAIT_TP, 2,
             plait_cost_allreduce(s->tp, t->bytes[PLAIT_TP], tp.alpha,
                                  tp.bandwidth) *
                     (1 - (s->c->tp_exposed ? 0 : s->traits->tp_hidden)) +
                 norm_seconds(s, &tp));
    p->backward[PLAIT_TP] += latent_seconds(s, &tp);
    set_axis(s, p, PLAIT_CP, 1, ring_seconds(s, p));
    set_axis(s, p, PLAIT_EP, 2 * plait_model_moe_share(s->m),
             alltoall_seconds(s, t->bytes[PLAIT_EP]));
    if (s->pp == 1)
        return;
    p->message = plait_cost_message(t->bytes[PLAIT_PP], pp.alpha, pp.bandwidth);
    if (plait_model_shares_table(s->m))
        p->tied = plait_cost_allreduce(2,
                                       plait_pieces_gradient_element(s) *
                                           s->m->vocab * s->m->hidden / s->tp,
                                       pp.alpha, pp.bandwidth);
}

/* Seconds of what is recomputed, on average over the layers. */
static double redone_seconds(const struct plait_shape *s,
                             const struct plait_pieces *p)
{
    double pass = 0;

    if (s->c->parallel.recompute == PLAIT_RECOMPUTE_FULL)
        pass = plait_pieces_pass(p) - p->work.attention;
    pass = pass * plait_shape_recomputed(s) +
           PLAIT_ATTENTION_FORWARD * p->work.attention *
               plait_shape_attention_again(s) +
           p->work.cheap * plait_shape_cheap_again(s);
    if (s->c->recompute_modules & PLAIT_MODULE_MLA_UP &&
        s->c->parallel.recompute != PLAIT_RECOMPUTE_FULL)
        pass += plait_work_latent_up(s);
    return pass;
}

/* Bytes/s of a GPU's share of the host's memory, 12 channels of DDR5 for 8. */
#define HOST_SHARE 50e9
/* A slower link to the host is PCIe, which a GPU shares with its NIC. */
#define PCIE_MOST 200e9

/* Activations are sent to the host during the pass that makes them and back
 * during the backward pass before theirs. Gradients (4 bytes) are sent there
 * and weights come back, and the host reads and writes state and master
 * weights. */
static void set_offload(const struct plait_shape *s, struct plait_pieces *p)
{
    enum plait_offload offload = s->c->parallel.offload;
    double rate = s->gpu->host_bw * (s->gpu->host_bw < PCIE_MOST ? 0.5 : 1);
    double one = plait_shape_offloaded(s) / rate;

    p->sent = fmax(0, one - plait_pieces_forward(p));
    p->fetched = fmax(0, one - plait_pieces_backward(p));
    if (offload & PLAIT_OFFLOAD_OPTIMIZER)
        p->away = plait_shape_sharded(s, plait_work_fullest_weights(s)) *
                  ((4 + s->element) / rate + plait_work_moved(s) / HOST_SHARE);
}

/* Launching the kernels of experts one by one takes the host longer than a GPU
 * needs for small kernels, and is hidden behind large ones: the cube root of
 * the sum of cubes is nearly the larger of both. */
static void wait_for_host(const struct plait_shape *s, struct plait_pieces *p)
{
    double gpu = 3 * plait_pieces_pass(p) + p->redone, host;
    double share = plait_model_moe_share(s->m);

    for (int i = 0; i < PLAIT_NAXES; i++)
        gpu += p->forward[i] + p->backward[i];
    host = 3 * s->traits->expert_s * plait_work_experts(s);
    if (s->c->train.precision != PLAIT_FP8)
        host /= 3;
    if (s->c->dispatch_hidden)
        host *= TURNS;
    p->work.launch +=
        share * (cbrt(gpu * gpu * gpu + host * host * host) - gpu) / 3;
}

/* Traffic of what predicts a token further, which is a part of the head: that
 * of a layer, and of the embedding a half of a layer's forward one. */
static double mtp_traffic(const struct plait_shape *s,
                          const struct plait_pieces *p)
{
    double sum = p->forward[PLAIT_TP] / 2;

    for (int i = 0; i < PLAIT_NAXES; i++)
        sum += p->forward[i] + p->backward[i];
    return s->m->mtp_layers * sum;
}

void plait_pieces_set(const struct plait_shape *s, struct plait_pieces *p)
{
    memset(p, 0, sizeof(*p));
    plait_traffic_set(&p->traffic, s->c, s->layout);
    plait_work_set(s, &p->work);
    p->redone = redone_seconds(s, p);
    set_traffic(s, p);
    p->work.head += mtp_traffic(s, p);
    if (s->m->experts && s->traits->expert_s > 0 && !s->c->graphs)
        wait_for_host(s, p);
    if (s->c->parallel.offload)
        set_offload(s, p);
}

double plait_pieces_gradient_element(const struct plait_shape *s)
{
    return s->c->train.precision == PLAIT_FP16 ||
                   s->c->parallel.grad_reduce == PLAIT_GRAD_BF16
               ? 2
               : 4;
}

double plait_pieces_weight_element(const struct plait_shape *s)
{
    return s->c->train.precision == PLAIT_FP8 && s->traits->gathers_codes
               ? 1
               : s->element;
}

static double half_of(const struct plait_shape *s, double bytes, double calls,
                      int n, int stride)
{
    struct path p = path_of(s, stride, n);

    if (n < 2)
        return 0;
    return calls * p.ring + (n - 1.0) / n * bytes / p.bandwidth;
}

/* The number of ranks in a data-parallel collective: with ZeRO those that a
 * region is sharded over, otherwise all ranks that hold the same weights. */
static int group_size(const struct plait_shape *s)
{
    return s->c->parallel.zero ? (int)plait_shape_shards(s) : s->dp * s->cp;
}

/* Experts' weights are shared by fewer ranks, so they are counted
 * separately. */
double plait_pieces_half(const struct plait_shape *s, double bytes,
                         double calls)
{
    int n = group_size(s), stride = plait_pieces_stride(s->layout, PLAIT_CP);
    double experts = plait_shape_expert_share(s);

    return half_of(s, bytes * (1 - experts), calls, n, stride) +
           (experts > 0
                ? half_of(s, bytes * experts, calls, n / s->ep, stride * s->ep)
                : 0);
}

/* Where a node has a whole replica, all-reduces of each rank's shard across
 * nodes. */
static double across_nodes(const struct plait_shape *s, double bytes,
                           double calls)
{
    int all = s->dp * s->cp, n = group_size(s), ep = s->ep;
    int stride = plait_pieces_stride(s->layout, PLAIT_CP);
    int shards = n > ep ? n / ep : 1; /* of an expert */
    double experts = plait_shape_expert_share(s), sum;

    if (n >= all)
        return 0;
    sum = half_of(s, bytes * (1 - experts) / n, calls, (all + n - 1) / n,
                  stride * n);
    if (experts > 0)
        sum += half_of(s, bytes * experts / shards, calls, all / ep / shards,
                       stride * ep * shards);
    return 2 * sum;
}

double plait_pieces_reduce(const struct plait_shape *s, double bytes,
                           double calls)
{
    if (s->traits->sum_bytes > 0 && s->c->parallel.zero == 1)
        return 2 * half_of(s, bytes, calls, s->dp * s->cp,
                           plait_pieces_stride(s->layout, PLAIT_CP));
    return plait_pieces_half(s, bytes, calls) + across_nodes(s, bytes, calls);
}

/* What a collective takes from the computing that it overlaps with: the
 * multiprocessors of its channels, and three times its own bandwidth of the
 * memory's (data that arrives is written, added or kept, and read to be sent
 * on). */
#define CHANNELS 16.0
#define COPIES 3.0

double plait_pieces_beside(const struct plait_shape *s)
{
    struct path p =
        path_of(s, plait_pieces_stride(s->layout, PLAIT_CP), group_size(s));

    return s->gpu->units ? CHANNELS / s->gpu->units +
                               COPIES * p.bandwidth / s->gpu->memory_bw
                         : 0;
}

/* As plait-train does on GPUs whose transfers can all be recorded. */
static bool gathers_ahead(const struct plait_shape *s)
{
    bool graphs = s->gpu->units && s->c->train.graph != PLAIT_GRAPH_OFF &&
                  !plait_recorded_not(s->c, s->layout);

    return plait_gathers_ahead(s->c, s->layout, s->gpu, (int)s->microbatches,
                               (struct plait_recorded){graphs, graphs});
}

bool plait_pieces_hides_gather(const struct plait_shape *s)
{
    if (s->c->framework == PLAIT_FRAMEWORK_PLAIT)
        return gathers_ahead(s);
    return s->traits->gather_hidden && s->bucketed;
}

double plait_pieces_gathers(const struct plait_shape *s, int blocks)
{
    return s->traits->broadcasts ? group_size(s) : blocks;
}

double plait_pieces_bucket_bytes(const struct plait_shape *s)
{
    struct path p =
        path_of(s, plait_pieces_stride(s->layout, PLAIT_CP), s->dp * s->cp);

    return plait_cost_bucket(s->c->parallel.bucket_mib, (int)p.inside,
                             (int)p.across, s->gpu);
}

double plait_pieces_buckets(const struct plait_shape *s, double bytes,
                            int blocks)
{
    double buckets = ceil(bytes / plait_pieces_bucket_bytes(s));

    if (s->traits->sum_bytes > 0)
        return fmin(blocks, ceil(bytes / s->traits->sum_bytes));
    return s->c->parallel.zero || buckets > blocks ? blocks : buckets;
}
