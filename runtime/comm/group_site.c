/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for the same group, and on how many nodes they are: known before the
 * group is made, so that its backend can be chosen by it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/backend.h"

static int compare_nodes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* How many of them are different; sorts them. */
static int count_nodes(uint64_t *nodes, int n)
{
    int different = 0;

    qsort(nodes, (size_t)n, sizeof(*nodes), compare_nodes);
    for (int i = 0; i < n; i++)
        different += i == 0 || nodes[i] != nodes[i - 1];
    return different;
}

void plait_group_site_clear(struct plait_group_site *site)
{
    free(site->asked);
    site->asked = NULL;
}

int plait_group_site_find(struct plait_comm *parent,
                          const struct plait_split *into,
                          struct plait_group_site *site, int *first)
{
    struct plait_group_request mine, *all = calloc(parent->size, sizeof(*all));
    uint64_t *nodes = calloc(parent->size, sizeof(*nodes));
    int n = -1;

    memset(&mine, 0, sizeof(mine));
    mine.node = parent->node;
    mine.color = into->color;
    mine.key = into->key;
    mine.rank = *first = parent->world_rank;
    if (plait_comm_ready(parent, all && nodes) < 0 ||
        plait_comm_host_all_gather(parent, &mine, all, sizeof(mine)) < 0) {
        free(all);
        goto out;
    }
    for (int i = n = 0; i < parent->size; i++)
        if (all[i].color == mine.color) {
            nodes[n++] = all[i].node;
            *first = all[i].rank < *first ? all[i].rank : *first;
        }
    site->known = parent->sited;
    site->nodes = count_nodes(nodes, n);
    site->network = &parent->network;
    site->asked = all;
out:
    free(nodes);
    return n;
}
