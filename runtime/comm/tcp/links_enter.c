/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank has entered, and whether its peers have entered the same. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/tcp/links_private.h"

static struct plait_caller caller(const struct plait_links *l, int rank,
                                  const struct plait_call *call)
{
    const struct plait_members *m = l->members;

    return (struct plait_caller){rank, m->all[m->order[rank]].host, call};
}

bool plait_entry_alike(struct plait_links *l, int peer,
                       const struct plait_links_head *head,
                       const struct plait_entry *entry)
{
    char text[PLAIT_LINKS_WHY];

    if (plait_call_same(&head->call, &entry->call))
        return true;
    plait_call_tell(entry->name, caller(l, peer, &head->call),
                    caller(l, l->rank, &entry->call), text, sizeof(text));
    plait_links_differ(l, text);
    return false;
}

/* -- collectives that are over --------------------------------------------- */

static struct plait_entered *find_group(const struct plait_links *l,
                                        uint64_t group)
{
    struct plait_entered *g = l->groups;

    while (g && g->group != group)
        g = g->next;
    return g;
}

static struct plait_entered *add_group(struct plait_links *l,
                                       const struct plait_entry *entry)
{
    struct plait_entered *g = calloc(1, sizeof(*g));

    if (!g) {
        plait_links_refuse(l, "out of memory");
        return NULL;
    }
    g->group = entry->group;
    snprintf(g->name, sizeof(g->name), "%s", entry->name);
    g->next = l->groups;
    return l->groups = g;
}

void plait_entered_destroy(struct plait_links *l)
{
    struct plait_entered *g;

    while ((g = l->groups)) {
        l->groups = g->next;
        free(g);
    }
}

/* A collective is left once all that its ranks send to this one has come. So a
 * message for one that is over is of a rank that entered another, after this
 * rank had gone on: the root of a broadcast waits for nobody. */
static bool check_left(struct plait_links *l, int peer,
                       const struct plait_links_head *head)
{
    uint64_t number = head->call.number;
    const struct plait_entered *g = find_group(l, head->group);
    const struct plait_call *mine;
    char text[PLAIT_LINKS_WHY];

    if (!g || number == 0 || number > g->last)
        return true;
    mine = &g->left[number % PLAIT_PAST];
    if (mine->number == number && plait_call_same(&head->call, mine))
        return true;
    if (mine->number == number)
        plait_call_tell(g->name, caller(l, peer, &head->call),
                        caller(l, l->rank, mine), text, sizeof(text));
    else
        plait_call_tell_alone(g->name, caller(l, peer, &head->call), l->rank,
                              "another", text, sizeof(text));
    plait_links_differ(l, text);
    return false;
}

/* -- enter and leave ------------------------------------------------------- */

void plait_links_enter(struct plait_links *l, struct plait_entry *entry)
{
    entry->of = find_group(l, entry->group);
    if (!entry->of && !(entry->of = add_group(l, entry)))
        return;
    entry->of->last = entry->call.number;
    entry->next = l->entered;
    entry->at = &l->entered;
    if (entry->next)
        entry->next->at = &entry->next;
    l->entered = entry;
    /* Not all peers of the group: most have sent nothing yet, and to look at
     * each in each collective takes time in a large world. */
    for (const struct plait_link *k = l->early_link; k; k = k->early)
        for (const struct plait_early *e = k->unclaimed; e; e = e->next)
            if (e->head.group == entry->group && e->head.tag == entry->tag &&
                !plait_entry_alike(l, k->peer, &e->head, entry))
                return;
}

void plait_links_leave(struct plait_entry *entry)
{
    if (!entry->at)
        return;
    entry->of->left[entry->call.number % PLAIT_PAST] = entry->call;
    *entry->at = entry->next;
    if (entry->next)
        entry->next->at = entry->at;
    entry->at = NULL;
}

bool plait_entry_check(struct plait_links *l, int peer,
                       const struct plait_links_head *head)
{
    for (const struct plait_entry *e = l->entered; e; e = e->next)
        if (e->group == head->group && e->tag == head->tag)
            return plait_entry_alike(l, peer, head, e);
    return check_left(l, peer, head);
}
