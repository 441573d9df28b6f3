/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"

void plait_node_destroy(struct plait_node *node)
{
    int saved = errno;

    if (!node)
        return;
    for (int i = 0; i < node->ngpus; i++) {
        free(node->gpus[i].nics);
        hwloc_bitmap_free(node->gpus[i].near);
    }
    free(node->gpus);
    free(node->nics);
    free(node->links);
    free(node->gpu_gpu);
    free(node->gpu_nic);
    if (node->topology)
        hwloc_topology_destroy(node->topology);
    free(node);
    errno = saved;
}

int node_builder_init(struct node_builder *builder, int switch_depth)
{
    memset(builder, 0, sizeof(*builder));
    builder->switch_depth = switch_depth;
    builder->node = calloc(1, sizeof(*builder->node));
    return builder->node ? 0 : -1;
}

void node_builder_abandon(struct node_builder *builder)
{
    int saved = errno;

    plait_node_destroy(builder->node);
    free(builder->gpus);
    free(builder->nics);
    memset(builder, 0, sizeof(*builder));
    errno = saved;
}

/* Make room for one more element. */
static int grow(void *array, int n, size_t size)
{
    void **at = array;
    void *bigger;

    if (n >= NODE_DEVICES_MOST) {
        errno = E2BIG;
        return -1;
    }
    bigger = realloc(*at, ((size_t)n + 1) * size);
    if (!bigger)
        return -1;
    *at = bigger;
    return 0;
}

int node_builder_add_gpu(struct node_builder *builder,
                         const struct plait_gpu *gpu,
                         const struct node_locus *locus)
{
    struct plait_node *node = builder->node;

    if (grow(&node->gpus, node->ngpus, sizeof(*gpu)) ||
        grow(&builder->gpus, node->ngpus, sizeof(*locus)))
        return -1;
    builder->gpus[node->ngpus] = *locus;
    node->gpus[node->ngpus] = *gpu;
    plait_text_clean(node->gpus[node->ngpus].busid);
    plait_text_clean(node->gpus[node->ngpus].vendor);
    plait_text_clean(node->gpus[node->ngpus].model);
    plait_text_clean(node->gpus[node->ngpus].uuid);
    node->gpus[node->ngpus].nics = NULL;
    node->gpus[node->ngpus].near = NULL;
    node->gpus[node->ngpus].nnics = 0;
    node->gpus[node->ngpus].index = node->ngpus; /* the index before sorting */
    node->ngpus++;
    return 0;
}

int node_builder_add_nic(struct node_builder *builder,
                         const struct plait_nic *nic,
                         const struct node_locus *locus)
{
    struct plait_node *node = builder->node;

    if (grow(&node->nics, node->nnics, sizeof(*nic)) ||
        grow(&builder->nics, node->nnics, sizeof(*locus)))
        return -1;
    builder->nics[node->nnics] = *locus;
    node->nics[node->nnics] = *nic;
    plait_text_clean(node->nics[node->nnics].name);
    plait_text_clean(node->nics[node->nnics++].busid);
    return 0;
}

void node_format_busid(unsigned domain, unsigned bus, unsigned dev,
                       unsigned func, char *busid)
{
    snprintf(busid, 16, "%04x:%02x:%02x.%x", domain & 0xfffffff, bus & 0xff,
             dev & 0x1f, func & 7);
}

int node_parse_busid(const char *text, unsigned *domain, unsigned *bus,
                     unsigned *dev, unsigned *func)
{
    unsigned d, b, s, f;
    int n = 0;

    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &d, &b, &s, &f, &n) != 4) {
        d = 0;
        if (sscanf(text, "%2x:%2x.%1x%n", &b, &s, &f, &n) != 3)
            return -1;
    }
    if (text[n] != '\0')
        return -1;
    *domain = d;
    *bus = b;
    *dev = s;
    *func = f;
    return 0;
}

/* Bus order; devices without a bus id come last. */
static int compare_busids(const char *a, const char *b)
{
    unsigned x[4] = {-1u, 0, 0, 0}, y[4] = {-1u, 0, 0, 0};

    node_parse_busid(a, &x[0], &x[1], &x[2], &x[3]);
    node_parse_busid(b, &y[0], &y[1], &y[2], &y[3]);
    for (int i = 0; i < 4; i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

/* Insertion sort: a node has tens of devices, and it must be stable. */
static void sort_gpus(struct node_builder *builder)
{
    struct plait_node *node = builder->node;
    int k;

    for (int i = 1; i < node->ngpus; i++) {
        struct plait_gpu gpu = node->gpus[i];
        struct node_locus locus = builder->gpus[i];

        for (k = i;
             k > 0 && compare_busids(node->gpus[k - 1].busid, gpu.busid) > 0;
             k--) {
            node->gpus[k] = node->gpus[k - 1];
            builder->gpus[k] = builder->gpus[k - 1];
        }
        node->gpus[k] = gpu;
        builder->gpus[k] = locus;
    }
    for (int i = 0; i < node->ngpus; i++)
        node->gpus[i].index = i;
}

static void sort_nics(struct node_builder *builder)
{
    struct plait_node *node = builder->node;
    int k;

    for (int i = 1; i < node->nnics; i++) {
        struct plait_nic nic = node->nics[i];
        struct node_locus locus = builder->nics[i];

        for (k = i;
             k > 0 && compare_busids(node->nics[k - 1].busid, nic.busid) > 0;
             k--) {
            node->nics[k] = node->nics[k - 1];
            builder->nics[k] = builder->nics[k - 1];
        }
        node->nics[k] = nic;
        builder->nics[k] = locus;
    }
}

int node_builder_sort(struct node_builder *builder)
{
    struct plait_node *node = builder->node;
    size_t n = (size_t)node->ngpus;

    sort_gpus(builder);
    sort_nics(builder);
    node_number_gpus(node);
    node->links = calloc(n * n + 1, sizeof(*node->links));
    return node->links ? 0 : -1;
}

int node_builder_find_gpu(const struct node_builder *builder, const char *busid)
{
    for (int i = 0; i < builder->node->ngpus; i++) {
        if (compare_busids(builder->node->gpus[i].busid, busid) == 0)
            return i;
    }
    return -1;
}

static enum plait_distance distance(const struct node_builder *builder,
                                    const struct node_locus *a,
                                    const struct node_locus *b)
{
    int common = 0;

    if (a->host != b->host || !a->host) {
        if (a->numa >= 0 || b->numa >= 0)
            return a->numa == b->numa ? PLAIT_DIST_NODE : PLAIT_DIST_SYS;
        return a->place && a->place == b->place ? PLAIT_DIST_NODE
                                                : PLAIT_DIST_SYS;
    }
    while (common < a->nbridges && common < b->nbridges &&
           a->bridges[common] == b->bridges[common])
        common++;
    if (common == 0)
        return PLAIT_DIST_PHB;
    if (a->nbridges - common <= builder->switch_depth &&
        b->nbridges - common <= builder->switch_depth)
        return PLAIT_DIST_PIX;
    return PLAIT_DIST_PXB;
}

/* The bandwidth between two GPUs is that of their direct links, plus, through
 * switches, the smaller of the two GPUs' bandwidths to all switches. */
int node_builder_join(struct node_builder *builder,
                      const struct node_link *links, int nlinks)
{
    struct plait_node *node = builder->node;
    double *up = calloc((size_t)node->ngpus + 1, sizeof(*up));
    int a, b;

    if (!up)
        return -1;
    for (int i = 0; i < nlinks; i++) {
        const struct node_link *link = &links[i];

        a = node_builder_find_gpu(builder, link->from);
        if (a < 0)
            continue;
        a += link->part;
        if (link->to_switch)
            up[a] += link->count * link->gbps;
        b = link->to_switch ? -1 : node_builder_find_gpu(builder, link->to);
        /* The other end is named by its device alone: any part of it. */
        for (int k = 0; b >= 0 && k < node->gpus[b].parts; k++)
            if (b + k != a)
                node->links[a * node->ngpus + b + k] +=
                    link->count * link->gbps;
    }
    for (a = 0; a < node->ngpus; a++) {
        for (b = 0; b < node->ngpus; b++) {
            if (a != b)
                node->links[a * node->ngpus + b] +=
                    up[a] < up[b] ? up[a] : up[b];
        }
    }
    free(up);
    return 0;
}

static int measure_distances(struct node_builder *builder)
{
    struct plait_node *node = builder->node;

    node->gpu_gpu = calloc((size_t)node->ngpus * (size_t)node->ngpus + 1,
                           sizeof(*node->gpu_gpu));
    node->gpu_nic = calloc((size_t)node->ngpus * (size_t)node->nnics + 1,
                           sizeof(*node->gpu_nic));
    if (!node->gpu_gpu || !node->gpu_nic)
        return -1;
    for (int g = 0; g < node->ngpus; g++) {
        for (int i = 0; i < node->ngpus; i++)
            node->gpu_gpu[g * node->ngpus + i] =
                i == g
                    ? PLAIT_DIST_SELF
                    : distance(builder, &builder->gpus[g], &builder->gpus[i]);
        for (int i = 0; i < node->nnics; i++)
            node->gpu_nic[g * node->nnics + i] =
                distance(builder, &builder->gpus[g], &builder->nics[i]);
    }
    return 0;
}

/* Islands are the connected components of the links, numbered by their
 * first GPU. */
static void find_islands(struct plait_node *node)
{
    int n = node->ngpus, changed;

    for (int i = 0; i < n; i++)
        node->gpus[i].island = i;
    do {
        changed = 0;
        for (int i = 0; i < n * n; i++) {
            struct plait_gpu *a = &node->gpus[i / n], *b = &node->gpus[i % n];

            if (node->links[i] > 0 && a->island != b->island) {
                if (a->island > b->island)
                    a->island = b->island;
                else
                    b->island = a->island;
                changed = 1;
            }
        }
    } while (changed);
    node->nislands = 0;
    for (int i = 0; i < n; i++) {
        if (node->gpus[i].island == i) {
            for (int k = i; k < n; k++) {
                if (node->gpus[k].island == i)
                    node->gpus[k].island = -1 - node->nislands;
            }
            node->nislands++;
        }
    }
    for (int i = 0; i < n; i++)
        node->gpus[i].island = -1 - node->gpus[i].island;
}

/* Mark the NICs a GPU may use: the nearest, and of these the fastest where
 * their speeds are known. `mark` holds a flag per NIC; returns how many. */
static int mark_nics(const struct plait_node *node, int gpu, char *mark)
{
    const enum plait_distance *far = node->gpu_nic + gpu * node->nnics;
    enum plait_distance best = PLAIT_DIST_SYS;
    double fastest = 0;
    int n = 0;

    for (int i = 0; i < node->nnics; i++) {
        if (far[i] < best)
            best = far[i];
    }
    for (int i = 0; i < node->nnics; i++) {
        if (far[i] == best && node->nics[i].gbps > fastest)
            fastest = node->nics[i].gbps;
    }
    for (int i = 0; i < node->nnics; i++) {
        mark[i] = far[i] == best &&
                  (node->nics[i].gbps == 0 || node->nics[i].gbps == fastest);
        n += mark[i];
    }
    return n;
}

/* Where several GPUs may use the same NICs, they divide them, so that no NIC
 * carries two GPUs' traffic while another is idle. */
static int choose_nics(struct plait_node *node, int gpu, char *mine,
                       char *theirs)
{
    struct plait_gpu *self = &node->gpus[gpu];
    int count = mark_nics(node, gpu, mine), sharers = 0, seat = 0, at = 0;
    int first, last;

    for (int i = 0; i < node->ngpus; i++) {
        mark_nics(node, i, theirs);
        if (memcmp(mine, theirs, (size_t)node->nnics) == 0) {
            seat += i < gpu;
            sharers++;
        }
    }
    first = seat * count / sharers;
    last = count >= sharers ? (seat + 1) * count / sharers : first + 1;
    self->nics = calloc((size_t)count + 1, sizeof(*self->nics));
    if (!self->nics)
        return -1;
    for (int i = 0; i < node->nnics; i++) {
        if (mine[i] && at >= first && at < last)
            self->nics[self->nnics++] = i;
        at += mine[i];
    }
    return 0;
}

static int choose_all_nics(struct plait_node *node)
{
    char *marks = calloc(2 * (size_t)node->nnics + 1, 1);
    int failed = !marks;

    for (int i = 0; !failed && i < node->ngpus; i++)
        failed = choose_nics(node, i, marks, marks + node->nnics);
    free(marks);
    return failed ? -1 : 0;
}

struct plait_node *node_builder_finish(struct node_builder *builder)
{
    struct plait_node *node = builder->node;

    if (measure_distances(builder))
        return NULL;
    node_join_parts(node);
    find_islands(node);
    if (choose_all_nics(node))
        return NULL;
    builder->node = NULL;
    node_builder_abandon(builder);
    return node;
}
