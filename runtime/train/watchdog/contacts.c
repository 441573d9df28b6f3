/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/watchdog/contacts.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"
#include "runtime/comm/parts.h"

/* -- the ranks ------------------------------------------------------------- */

/* -1: out of memory. */
static int number_nodes(struct plait_contacts *c)
{
    uint64_t *spaces = calloc((size_t)c->world, sizeof(*spaces));

    for (int r = 0; spaces && r < c->world; r++)
        spaces[r] = c->all[r].space;
    c->nnodes =
        spaces ? plait_classes_number(spaces, c->world, c->node_of) : -1;
    free(spaces);
    if (c->nnodes > 0)
        c->node = calloc((size_t)c->nnodes, sizeof(*c->node));
    return c->node ? 0 : -1;
}

/* Rank 0 tells all ranks an id of this run, and its own host. */
static int hear_first(struct plait_contacts *c, struct plait_comm *world,
                      const struct plait_hang_contact *mine)
{
    struct {
        uint64_t run;
        char host[sizeof(c->first_host)];
    } first = {0, ""};

    if (getrandom(&first.run, sizeof(first.run), 0) != sizeof(first.run))
        first.run = mine->space + mine->pid;
    gethostname(first.host, sizeof(first.host) - 1);
    if (plait_comm_host_broadcast(world, &first, sizeof(first), 0) < 0)
        return -1;
    c->run = first.run;
    memcpy(c->first_host, first.host, sizeof(c->first_host));
    c->first_host[sizeof(c->first_host) - 1] = '\0';
    return 0;
}

int plait_contacts_meet(struct plait_contacts *c, struct plait_comm *world,
                        const struct plait_hang_contact *mine,
                        struct plait_error *err)
{
    size_t n = (size_t)plait_comm_size(world);
    int rc;

    *c = (struct plait_contacts){.rank = plait_comm_rank(world),
                                 .world = (int)n};
    c->all = calloc(n, sizeof(*c->all));
    c->node_of = calloc(n, sizeof(*c->node_of));
    rc = c->all && c->node_of ? 0 : plait_errorf(err, "out of memory");
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    if (hear_first(c, world, mine) < 0 ||
        plait_comm_host_all_gather(world, mine, c->all, sizeof(*mine)) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    rc = number_nodes(c);
    if (rc < 0)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(world, rc, err) < 0)
        return -1;
    gethostname(c->node[c->node_of[c->rank]].host, sizeof(c->node->host) - 1);
    return 0;
}

void plait_contacts_clear(struct plait_contacts *c)
{
    free(c->all);
    free(c->node_of);
    free(c->node);
    free(c->at);
    *c = (struct plait_contacts){0};
}

const char *plait_contacts_host(const struct plait_contacts *c, int rank)
{
    return c->node[c->node_of[rank]].host;
}

/* -- the nodes ------------------------------------------------------------- */

static bool is_set(const unsigned char *bytes, size_t size)
{
    while (size > 0 && bytes[size - 1] == 0)
        size--;
    return size > 0;
}

static void set_addresses(struct plait_contacts *c, const uint16_t *ports)
{
    for (int r = 0; r < c->world; r++) {
        const struct plait_hang_node *node = &c->node[c->node_of[r]];
        struct plait_heartbeat_address *at = &c->at[r];

        memcpy(at->v6, node->v6, sizeof(at->v6));
        memcpy(at->v4, node->v4, sizeof(at->v4));
        at->has6 = is_set(node->v6, sizeof(node->v6));
        at->has4 = is_set(node->v4, sizeof(node->v4));
        at->port = ports[r];
    }
}

/* Gather from every node `size` bytes of its struct, from offset `first` on. */
static int gather_nodes(struct plait_contacts *c, struct plait_comm *world,
                        size_t first, size_t size, struct plait_error *err)
{
    size_t n = (size_t)c->nnodes;
    char *all = calloc(n, size);
    const char *mine = (const char *)&c->node[c->node_of[c->rank]] + first;
    int rc = all ? 0 : plait_errorf(err, "out of memory");

    rc = plait_error_consensus(world, rc, err);
    if (rc == 0)
        rc = plait_comm_gather_parts(
            world, &(struct plait_classes){c->node_of, c->nnodes}, mine, size,
            all, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        memset(&c->node[i], 0, sizeof(c->node[i]));
        memcpy((char *)&c->node[i] + first, all + i * size, size);
    }
    free(all);
    return rc;
}

static int gather_ports(struct plait_contacts *c, struct plait_comm *world,
                        uint16_t port, struct plait_error *err)
{
    uint16_t *ports = calloc((size_t)c->world, sizeof(*ports));
    int rc;

    c->at = calloc((size_t)c->world, sizeof(*c->at));
    rc = ports && c->at ? 0 : plait_errorf(err, "out of memory");
    rc = plait_error_consensus(world, rc, err);
    if (rc == 0 &&
        plait_comm_host_all_gather(world, &port, ports, sizeof(port)) < 0)
        rc = plait_errorf(err, "%s", plait_comm_error(world));
    if (rc == 0)
        set_addresses(c, ports);
    free(ports);
    return rc;
}

int plait_contacts_exchange(struct plait_contacts *c, struct plait_comm *world,
                            const struct plait_heartbeat_address *mine,
                            struct plait_record *record,
                            const struct plait_record *first,
                            struct plait_error *err)
{
    struct plait_hang_node *node = &c->node[c->node_of[c->rank]];
    double most[2] = {(double)strlen(node->host), !mine->has4};
    size_t from, to = offsetof(struct plait_hang_node, host);

    memcpy(node->v6, mine->v6, sizeof(node->v6));
    memcpy(node->v4, mine->v4, sizeof(node->v4));
    if (record) {
        memcpy(record->v6, mine->v6, sizeof(record->v6));
        memcpy(record->v4, mine->v4, sizeof(record->v4));
    }
    if (plait_comm_host_all_reduce(world, most, 2, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(world));
    /* All ranks have received the same numbers. */
    if (!(most[0] >= 0 && most[0] < (double)sizeof(node->host))) {
        errno = EPROTO;
        return plait_errorf(err, "a rank has a host name of %g characters",
                            most[0]);
    }
    /* All records are written now, because the all-reduce has ended. */
    if (first) {
        memcpy(node->v6, first->v6, sizeof(node->v6));
        memcpy(node->v4, first->v4, sizeof(node->v4));
    }
    /* Where all ranks have an IPv4 address, IPv6 ones are not needed. */
    from = most[1] == 0 ? offsetof(struct plait_hang_node, v4) : 0;
    to += (size_t)most[0];
    if (gather_nodes(c, world, from, to - from, err) < 0)
        return -1;
    return gather_ports(c, world, mine->port, err);
}
