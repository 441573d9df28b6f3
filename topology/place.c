/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <stdlib.h>
#include <string.h>

/* Nodes under one switch become neighbours, at every level of the tree.
 * Switches are visited in the order in which Slurm's list first names one of
 * their nodes, and the nodes of a leaf keep Slurm's order, so a list that is
 * in order already stays as it is. */

enum { PATH_MOST = 16 };

struct key {
    int node;
    int path[PATH_MOST]; /* first node under each switch above, topmost first */
    int depth;
};

/* The lowest node index below every switch. */
static int *first_nodes(const struct plait_plan_request *request, int *leaf)
{
    const struct plait_fabric *fabric = request->fabric;
    int n = plait_fabric_switches(fabric);
    int *first = malloc((size_t)(n + 1) * sizeof(*first));

    if (!first)
        return NULL;
    for (int i = 0; i < n; i++)
        first[i] = request->nnodes;
    for (int i = 0; i < request->nnodes; i++) {
        leaf[i] = plait_fabric_leaf(fabric, request->nodes[i]);
        for (int s = leaf[i]; s >= 0 && i < first[s];
             s = plait_fabric_parent(fabric, s))
            first[s] = i;
    }
    return first;
}

static void set_key(struct key *key, const struct plait_fabric *fabric,
                    const int *first, int node, int leaf)
{
    int n = 0, up[PATH_MOST];

    for (int s = leaf; s >= 0 && n < PATH_MOST;
         s = plait_fabric_parent(fabric, s))
        up[n++] = first[s];
    key->node = node;
    key->depth = n;
    for (int i = 0; i < n; i++)
        key->path[i] = up[n - 1 - i];
}

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    for (int i = 0;; i++) {
        int p = i < x->depth ? x->path[i] : x->node;
        int q = i < y->depth ? y->path[i] : y->node;

        if (p != q)
            return p < q ? -1 : 1;
        if (i >= x->depth && i >= y->depth)
            return 0;
    }
}

int plait_place_nodes(const struct plait_plan_request *request, int *order)
{
    size_t n = (size_t)request->nnodes;
    struct key *keys = malloc(n * sizeof(*keys));
    int *leaf = malloc(n * sizeof(*leaf));
    int *first = leaf ? first_nodes(request, leaf) : NULL;
    int rc = -1;

    if (keys && first) {
        for (int i = 0; i < request->nnodes; i++)
            set_key(&keys[i], request->fabric, first, i, leaf[i]);
        qsort(keys, n, sizeof(*keys), compare);
        for (int i = 0; i < request->nnodes; i++)
            order[i] = keys[i].node;
        rc = 0;
    }
    free(keys);
    free(leaf);
    free(first);
    return rc;
}
