/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks know of each other's nodes after each has sent its part, in
 * processes that pretend to be on several nodes. */
#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/backend.h"
#include "runtime/train/watchdog/contacts.h"
#include "tap.h"
#include "tcp_ranks.h"

enum { WORLD = 6, NODES = 3 };

static const int node_of[WORLD] = {0, 1, 0, 2, 1, 0};
static const int first_of[NODES] = {0, 1, 3};
static const char *const hosts[NODES] = {"a", "node-of-a-long-name", ""};

static struct plait_record *records; /* [WORLD], shared by the processes */

static struct plait_heartbeat_address address_of(int node, bool four)
{
    struct plait_heartbeat_address at = {.has4 = four, .has6 = 1};

    for (int i = 0; i < 16; i++)
        at.v6[i] = (unsigned char)(16 * node + i + 1);
    for (int i = 0; four && i < 4; i++)
        at.v4[i] = (unsigned char)(100 + 10 * node + i);
    return at;
}

static int is_known(const struct plait_contacts *c, int rank, bool six)
{
    int node = node_of[rank];
    const struct plait_heartbeat_address *at = &c->at[rank];
    struct plait_heartbeat_address want = address_of(node, !six || node != 1);

    return c->node_of[rank] == node && c->all[rank].pid == 1000u + rank &&
           c->all[rank].gpu == 2u * rank && at->port == 5000 + rank &&
           at->has4 == want.has4 && at->has6 == six &&
           !memcmp(at->v4, want.v4, sizeof(want.v4)) &&
           (!six || !memcmp(at->v6, want.v6, sizeof(want.v6))) &&
           !strcmp(plait_contacts_host(c, rank), hosts[node]);
}

/* six: the second node has no IPv4 address. Ranks that are not the first of
 * their node have no addresses to send. */
static int meet(struct plait_comm *world, int rank, bool six)
{
    int node = node_of[rank], first = first_of[node], bad = 0;
    struct plait_hang_contact mine = {.space = 9 - (uint64_t)node,
                                      .pid = 1000u + rank,
                                      .gpu = 2u * rank,
                                      .fd = -1};
    struct plait_heartbeat_address at = {.has4 = !six || node != 1};
    struct plait_contacts c;
    struct plait_error err;

    if (rank == first)
        at = address_of(node, at.has4);
    at.port = (uint16_t)(5000 + rank);
    if (plait_contacts_meet(&c, world, &mine, &err) < 0)
        bad = 1;
    if (!bad)
        strcpy(c.node[node].host, hosts[node]);
    if (!bad && (c.nnodes != NODES || c.run == 0 ||
                 plait_contacts_exchange(&c, world, &at, &records[rank],
                                         &records[first], &err) < 0))
        bad = 1;
    for (int r = 0; !bad && r < WORLD; r++)
        bad |= !is_known(&c, r, six);
    plait_contacts_clear(&c);
    return bad;
}

static int run_rank(const struct plait_launch *launch, void *six)
{
    struct plait_error err;
    struct plait_comm *world = plait_tcp_create(launch, 200, &err);
    int bad = world ? meet(world, launch->rank, *(bool *)six) : 1;

    if (!world)
        diag("rank %d: %s", launch->rank, err.text);
    plait_comm_destroy(world);
    return bad;
}

int main(void)
{
    bool six = false;

    records = mmap(NULL, WORLD * sizeof(*records), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (records == MAP_FAILED)
        return 1;
    ok(sizeof(struct plait_hang_contact) == 16, "a contact has 16 bytes");
    ok(run_processes(WORLD, run_rank, &six) == 0,
       "nodes of 3, 2 and 1 ranks: all know the addresses of their first "
       "ranks, and their names");
    six = true;
    ok(run_processes(WORLD, run_rank, &six) == 0,
       "... by IPv6 where one has no other address");
    return done_testing();
}
