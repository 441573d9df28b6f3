/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for the same group, and in how many domains they are: known before
 * the group is made, so that its backend can be chosen by it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/comm/backend.h"

static int compare_domains(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* How many of them are different; sorts them. */
static int count_domains(uint64_t *domains, int n)
{
    int different = 0;

    qsort(domains, (size_t)n, sizeof(*domains), compare_domains);
    for (int i = 0; i < n; i++)
        different += i == 0 || domains[i] != domains[i - 1];
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
    uint64_t *domains = calloc(parent->size, sizeof(*domains));
    int n = -1;

    memset(&mine, 0, sizeof(mine));
    mine.domain = parent->domain;
    mine.color = into->color;
    mine.key = into->key;
    mine.rank = *first = parent->world_rank;
    if (plait_comm_ready(parent, all && domains) < 0 ||
        plait_comm_host_all_gather(parent, &mine, all, sizeof(mine)) < 0) {
        free(all);
        goto out;
    }
    for (int i = n = 0; i < parent->size; i++)
        if (all[i].color == mine.color) {
            domains[n++] = all[i].domain;
            *first = all[i].rank < *first ? all[i].rank : *first;
        }
    site->known = parent->sited;
    site->domains = count_domains(domains, n);
    site->network = &parent->network;
    site->asked = all;
out:
    free(domains);
    return n;
}
