/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/comm/bootstrap/tcp_tree.h"

#include <stdlib.h>
#include <string.h>

void plait_tcp_tree_init(struct plait_tcp_tree *tree, int rank, int size)
{
    int from = 0, to = size, parent = -1, rest, i;

    for (;;) {
        rest = to - from - 1;
        tree->parent = parent;
        tree->ways = rest < PLAIT_TCP_WAYS ? rest : PLAIT_TCP_WAYS;
        for (i = 0; i <= tree->ways; i++)
            tree->first[i] =
                from + 1 +
                (tree->ways ? (int)((int64_t)rest * i / tree->ways) : 0);
        if (rank == from)
            return;
        i = plait_tcp_tree_child(tree, rank);
        parent = from;
        from = tree->first[i];
        to = tree->first[i + 1];
    }
}

int plait_tcp_tree_child(const struct plait_tcp_tree *tree, int rank)
{
    for (int i = 0; i < tree->ways; i++)
        if (rank >= tree->first[i] && rank < tree->first[i + 1])
            return i;
    return -1;
}

bool plait_tcp_contact_is_sound(const struct plait_tcp_contact *contact)
{
    return contact->port >= 0 && contact->port < 65536 &&
           memchr(contact->host, '\0', sizeof(contact->host));
}

struct request {
    int32_t color, key;
    int rank;
};

static int compare_requests(const void *a, const void *b)
{
    const struct request *x = a, *y = b;

    if (x->color != y->color)
        return x->color < y->color ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* requests[0 .. size - 1] form a group, in that order. */
static void place_group(const struct plait_tcp_contact *all,
                        const struct request *requests, int size,
                        struct plait_tcp_place *places)
{
    struct plait_tcp_tree tree;

    for (int i = 0; i < size; i++) {
        struct plait_tcp_place *p = &places[requests[i].rank];

        plait_tcp_tree_init(&tree, i, size);
        p->rank = i;
        p->size = size;
        if (tree.parent >= 0)
            p->parent = all[requests[tree.parent].rank];
    }
}

int plait_tcp_places(const struct plait_tcp_contact *all, int n,
                     struct plait_tcp_place *places)
{
    struct request *requests = calloc((size_t)n, sizeof(*requests));
    int from = 0;

    if (!requests)
        return -1;
    memset(places, 0, (size_t)n * sizeof(*places));
    for (int i = 0; i < n; i++)
        requests[i] = (struct request){all[i].color, all[i].key, i};
    qsort(requests, (size_t)n, sizeof(*requests), compare_requests);
    for (int to = 1; to <= n; to++) {
        if (to < n && requests[to].color == requests[from].color)
            continue;
        if (requests[from].color >= 0)
            place_group(all, requests + from, to - from, places);
        from = to;
    }
    free(requests);
    return 0;
}
