/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/node/node.h"

#include <stdbool.h>

/* Grouping GPUs: greedy first, then swaps between groups for as long as one
 * helps. A node has at most tens of GPUs, so this is exact enough and quick;
 * ties go to the lower position, so it is deterministic. */

/* How much a group gains if it has both GPUs: a link counts more than any PCIe
 * distance. */
static double affinity(const struct plait_node *node, int a, int b)
{
    double link =
        node->links[a * node->ngpus + b] + node->links[b * node->ngpus + a];

    return 16 * link +
           (PLAIT_DIST_SYS - (int)node->gpu_gpu[a * node->ngpus + b]);
}

/* Affinity of GPU `gpu` to the GPUs at places first .. last-1, leaving out
 * `except`. */
static double pull(const struct plait_node *node, const int *order, int first,
                   int last, int gpu, int except)
{
    double sum = 0;

    for (int i = first; i < last; i++) {
        if (i != except)
            sum += affinity(node, order[i], gpu);
    }
    return sum;
}

static void swap(int *order, int a, int b)
{
    int gpu = order[a];

    order[a] = order[b];
    order[b] = gpu;
}

/* Move the GPU at place `from` to place `to` <= from; the rest keep their
 * order. */
static void move_up(int *order, int from, int to)
{
    int gpu = order[from];

    for (; from > to; from--)
        order[from] = order[from - 1];
    order[to] = gpu;
}

/* Start each group with the first free GPU, and fill it with the GPUs that have
 * the most affinity to those already in it. */
static void group_greedily(const struct plait_node *node, int *order, int n,
                           int group)
{
    for (int at = 0; at < n; at++) {
        int start = at - at % group, best = at;
        double most = -1;

        for (int i = at; i < n; i++) {
            double sum =
                at == start ? 0 : pull(node, order, start, at, order[i], -1);

            if (sum > most) {
                most = sum;
                best = i;
            }
        }
        move_up(order, best, at);
    }
}

static int swap_once(const struct plait_node *node, int *order, int n,
                     int group)
{
    for (int a = 0; a < n; a++) {
        int a0 = a - a % group, a1 = a0 + group < n ? a0 + group : n;

        for (int b = a1; b < n; b++) {
            int b0 = b - b % group, b1 = b0 + group < n ? b0 + group : n;
            double now = pull(node, order, a0, a1, order[a], a) +
                         pull(node, order, b0, b1, order[b], b);
            double then = pull(node, order, a0, a1, order[b], a) +
                          pull(node, order, b0, b1, order[a], b);

            if (then > now + 1e-9) {
                swap(order, a, b);
                return 1;
            }
        }
    }
    return 0;
}

/* How well the GPUs of one group are connected with each other. */
static double inside(const struct plait_node *node, const int *order, int first,
                     int group)
{
    double sum = 0;

    for (int i = first; i < first + group; i++)
        sum += pull(node, order, first, i, order[i], -1);
    return sum;
}

static bool comes_before(const struct plait_node *node, const int *order, int a,
                         int b, int group)
{
    double x = inside(node, order, a, group);
    double y = inside(node, order, b, group);
    int i = node->gpus[order[a]].island, k = node->gpus[order[b]].island;

    if (x > y + 1e-9 || y > x + 1e-9)
        return x > y;
    if (i != k)
        return i < k;
    return order[a] < order[b];
}

/* Sort the GPUs of each group in ascending order; then whole groups by how well
 * they are connected inside, by island, and by their first GPU. The last,
 * shorter group stays last. */
static void sort_groups(const struct plait_node *node, int *order, int n,
                        int group)
{
    for (int at = 0; at < n; at += group) {
        int end = at + group < n ? at + group : n;

        for (int i = at; i < end; i++) {
            for (int k = i + 1; k < end; k++) {
                if (order[k] < order[i])
                    swap(order, i, k);
            }
        }
    }
    for (int at = 0; at + group <= n; at += group) {
        for (int i = at + group; i + group <= n; i += group) {
            if (comes_before(node, order, i, at, group)) {
                for (int k = 0; k < group; k++)
                    swap(order, at + k, i + k);
            }
        }
    }
}

void plait_node_order_gpus(const struct plait_node *node, const int *gpus,
                           int n, int group, int *order)
{
    for (int i = 0; i < n; i++)
        order[i] = gpus ? gpus[i] : i;
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (order[k] < order[i])
                swap(order, i, k);
        }
    }
    if (group < 1 || group > n)
        group = n > 0 ? n : 1;
    group_greedily(node, order, n, group);
    /* Each swap increases the affinity; a few per GPU are enough. */
    for (int i = 0; i < 8 * n && swap_once(node, order, n, group); i++)
        ;
    sort_groups(node, order, n, group);
}
