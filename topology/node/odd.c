/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU that lacks links that the others of its node have. */
#include <stdio.h>
#include <string.h>

#include "topology/node/build.h"

/* So many others must agree: pairs of GPUs may be bridged, and the rest not. */
enum { AGREE_LEAST = 3 };

/* The best link of a GPU, GB/s. */
static double best_link(const struct plait_node *node, int gpu)
{
    double best = 0;

    for (int k = 0; k < node->ngpus; k++)
        if (node->links[gpu * node->ngpus + k] > best)
            best = node->links[gpu * node->ngpus + k];
    return best;
}

static double best_of_all(const struct plait_node *node)
{
    double best = 0;

    for (int i = 0; i < node->ngpus; i++)
        if (best_link(node, i) > best)
            best = best_link(node, i);
    return best;
}

static bool is_odd(const struct plait_node *node, int gpu, double best)
{
    /* MIG instances have no links; others need not be of one make. */
    return !plait_gpu_is_mig(&node->gpus[gpu]) && best_link(node, gpu) < best;
}

static bool are_alike(const struct plait_node *node)
{
    for (int i = 1; i < node->ngpus; i++)
        if (strcmp(node->gpus[i].model, node->gpus[0].model) != 0 ||
            strcmp(node->gpus[i].vendor, node->gpus[0].vendor) != 0)
            return false;
    return true;
}

const char *plait_node_link_name(const struct plait_node *node, int gpu)
{
    if (strcmp(node->gpus[gpu].vendor, "amd") == 0)
        return "xGMI";
    return strcmp(node->gpus[gpu].vendor, "intel") == 0 ? "Xe Link" : "NVLink";
}

/* "GPU 1", "GPUs 1, 4": those whose best link is as good as that of `gpu`.
 * Returns how many. */
static int list_gpus(const struct plait_node *node, double link, char *to,
                     size_t size)
{
    size_t used = 0;
    int n = 0;

    for (int i = 0; i < node->ngpus; i++)
        n += best_link(node, i) == link;
    used = (size_t)snprintf(to, size, "GPU%s", n == 1 ? "" : "s");
    n = 0;
    for (int i = 0; i < node->ngpus && used < size; i++) {
        if (best_link(node, i) != link)
            continue;
        used +=
            (size_t)snprintf(to + used, size - used, "%s %d", n ? "," : "", i);
        n++;
    }
    return n;
}

bool plait_node_find_odd(const struct plait_node *node, char *text, size_t size)
{
    double best = best_of_all(node), least = best;
    int nodd = 0, n, rest;
    char who[128];

    for (int i = 0; i < node->ngpus; i++) {
        if (!is_odd(node, i, best))
            continue;
        nodd++;
        if (best_link(node, i) < least)
            least = best_link(node, i);
    }
    rest = node->ngpus - nodd;
    if (nodd == 0 || rest < AGREE_LEAST || rest <= nodd || !are_alike(node))
        return false;
    n = list_gpus(node, least, who, sizeof(who));
    if (least == 0)
        snprintf(text, size, "%s %s no %s, the other %d have: broken?", who,
                 n == 1 ? "has" : "have", plait_node_link_name(node, 0), rest);
    else
        snprintf(text, size,
                 "%s %s only %.4g GB/s of %s, the other %d have %.4g: broken?",
                 who, n == 1 ? "has" : "have", least,
                 plait_node_link_name(node, 0), rest, best);
    return true;
}
