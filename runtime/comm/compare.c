/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "topology/base/text.h"

double plait_compare_share(struct plait_comm *const *comms, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        if (comms[i])
            sum += plait_tally_share(comms[i]->stats.tally, comms[i]->rank,
                                     comms[i]->size);
    return sum;
}

/* What each rank of a group shows the others. */
struct shown {
    struct plait_tally tally;
    int32_t rank; /* in the world */
    char host[60];
    struct plait_call past[PLAIT_PAST];
};

static const struct plait_call *find_call(const struct shown *s,
                                          uint64_t number)
{
    const struct plait_call *call = &s->past[number % PLAIT_PAST];

    return call->number == number ? call : NULL;
}

static uint64_t last_number(const struct shown *s)
{
    uint64_t last = 0;

    for (int i = 0; i < PLAIT_PAST; i++)
        if (s->past[i].number > last)
            last = s->past[i].number;
    return last;
}

static void tell_two(const char *group, const struct shown *a,
                     const struct shown *b, uint64_t number, char *why,
                     size_t size)
{
    struct plait_caller one = {a->rank, a->host, find_call(a, number)};
    struct plait_caller two = {b->rank, b->host, find_call(b, number)};

    if (one.call && two.call)
        plait_call_tell(group, one, two, why, size);
    else if (one.call)
        plait_call_tell_alone(group, one, b->rank, "nothing", why, size);
    else
        plait_call_tell_alone(group, two, a->rank, "nothing", why, size);
}

static bool differ_at(const struct shown *a, const struct shown *b,
                      uint64_t number)
{
    const struct plait_call *x = find_call(a, number);
    const struct plait_call *y = find_call(b, number);

    return x && y ? !plait_call_same(x, y)
                  : (x && number > last_number(b)) ||
                        (y && number > last_number(a));
}

/* The first collective in which one of the ranks differs from the first rank,
 * of those that are remembered. */
static bool find_difference(const char *group, const struct shown *all, int n,
                            char *why, size_t size)
{
    uint64_t last = 0, from;

    for (int r = 0; r < n; r++)
        if (last_number(&all[r]) > last)
            last = last_number(&all[r]);
    from = last > 2 * PLAIT_PAST ? last - 2 * PLAIT_PAST : 1;
    for (uint64_t number = from; number <= last; number++)
        for (int r = 1; r < n; r++)
            if (differ_at(&all[0], &all[r], number)) {
                tell_two(group, &all[0], &all[r], number, why, size);
                return true;
            }
    for (int r = 1; r < n; r++)
        if (all[r].tally.hash != all[0].tally.hash ||
            all[r].tally.n != all[0].tally.n) {
            snprintf(why, size,
                     "rank %d (%s) has started other transfers of %s than "
                     "rank %d, more than %d before the last",
                     all[r].rank, all[r].host, group, all[0].rank, PLAIT_PAST);
            return true;
        }
    return false;
}

/* Collective over the group. A rank without memory for it fails in plain words:
 * the run ends in any case. */
static bool compare_group(struct plait_comm *c, char *why, size_t size)
{
    struct shown mine = {.tally = c->stats.tally, .rank = c->world_rank};
    struct shown *all = calloc((size_t)c->size, sizeof(*all));
    bool found = false;

    gethostname(mine.host, sizeof(mine.host) - 1);
    memcpy(mine.past, c->past, sizeof(mine.past));
    if (plait_comm_ready(c, all != NULL) == 0 &&
        plait_comm_host_all_gather(c, &mine, all, sizeof(mine)) == 0)
        found = find_difference(c->name, all, c->size, why, size);
    free(all);
    return found;
}

int plait_compare_tell(struct plait_comm *world,
                       struct plait_comm *const *comms, int n)
{
    char why[256] = "ranks have started different transfers of a group";
    double teller = 0;
    char one[sizeof(why)];
    bool found = false;

    /* Compare all groups, also after a difference: ranks that are not in that
     * group are still in the others. */
    for (int i = 0; i < n; i++)
        if (comms[i] && comms[i]->size > 1 &&
            compare_group(comms[i], one, sizeof(one)) && !found) {
            memcpy(why, one, sizeof(why));
            found = true;
        }
    if (found)
        teller = world->size - world->rank;
    if (plait_comm_host_all_reduce(world, &teller, 1, PLAIT_MAX) < 0 ||
        plait_comm_host_broadcast(world, why, sizeof(why),
                                  teller > 0 && teller <= world->size
                                      ? world->size - (int)teller
                                      : 0) < 0)
        return -1;
    why[sizeof(why) - 1] = '\0';
    plait_text_clean(why);
    world->differs = true;
    return plait_comm_fail(world, "%s", why);
}
