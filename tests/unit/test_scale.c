/* SPDX-License-Identifier: Apache-2.0 */
/* How many messages and bytes each rank sends before and between steps, for
 * host values along the tree of tcp.c: counted in that many processes and
 * compared with what the tree predicts. Arguments are numbers of ranks to print
 * a table for (make bench-scale), and for 131072 by prediction alone. */
#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/comm/backend.h"
#include "runtime/comm/bootstrap/tcp_tree.h"
#include "runtime/train/watchdog/contacts.h"
#include "tap.h"
#include "tcp_ranks.h"

#define RANKS 40
#define LARGE 131072
#define TP 8 /* ranks of a tensor parallel group, and per node */
#define GATHERED 120
#define HOST "node12345678"

enum { WORLD, GATHER, CONTACTS, SUM, ID, BARRIER, SPLIT_TP, SPLIT_DP, NPHASES };

static const char *const phases[NPHASES] = {
    "the world meets",    "all-gather of 120 bytes", "contacts, nodes of 8",
    "sum of 4 numbers",   "broadcast of 128 bytes",  "barrier",
    "split: groups of 8", "split: groups of 1 in 8",
};

struct sent {
    uint64_t messages, bytes;
};

static struct sent sent; /* by this process */

/* In place of the C library's function. */
ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    ssize_t rc = syscall(SYS_sendto, fd, buf, n, flags, NULL, 0);

    if (rc > 0) {
        sent.messages++;
        sent.bytes += (uint64_t)rc;
    }
    return rc;
}

/* -- what the tree predicts ------------------------------------------------ */

/* Rendezvous: what the joining rank sends, and what its parent sends. */
enum { HELLO = 48 + 32, PROOF = 32, ANSWER = 48, CONFIRM = 1 };
/* The head of a message of host values (tcp.c), which says what the sender has
 * entered; a longer message is sent in two pieces. */
enum { HEAD = 112, ONE_PIECE = 1024 };
enum {
    CONTACT = sizeof(struct plait_tcp_contact),
    PLACE = sizeof(struct plait_tcp_place),
    WISH = 16, /* before a split, see comm.c */
};

static void add(struct sent *s, int messages, uint64_t bytes)
{
    s->messages += (uint64_t)messages;
    s->bytes += (uint64_t)messages * bytes;
}

/* Messages of host values. */
static void add_values(struct sent *s, int messages, uint64_t bytes)
{
    add(s, messages, HEAD + bytes);
    if (bytes > ONE_PIECE)
        s->messages += (uint64_t)messages;
}

static uint64_t run_of(const struct plait_tcp_tree *t)
{
    return (uint64_t)(t->first[t->ways] - t->first[0] + 1);
}

static void add_sum(struct sent *s, const struct plait_tcp_tree *t, size_t n)
{
    add_values(s, t->ways + (t->parent >= 0), n);
}

static void add_gather(struct sent *s, const struct plait_tcp_tree *t,
                       size_t each)
{
    add_values(s, t->parent >= 0, run_of(t) * each);
}

static void add_scatter(struct sent *s, const struct plait_tcp_tree *t,
                        size_t each)
{
    for (int i = 0; i < t->ways; i++)
        add_values(s, 1, (uint64_t)(t->first[i + 1] - t->first[i]) * each);
}

static void add_all_gather(struct sent *s, const struct plait_tcp_tree *t,
                           int size, size_t each)
{
    add_gather(s, t, each);
    add_values(s, t->ways, (uint64_t)size * each);
}

/* One eighth of the node's address and name: each of its ranks sends a part. */
enum { PART = (4 + sizeof(HOST) - 1 + TP - 1) / TP };

static void add_contacts(struct sent *s, const struct plait_tcp_tree *t,
                         int size)
{
    add_values(s, t->ways, 72); /* id of the run, and rank 0's name */
    add_all_gather(s, t, size, sizeof(struct plait_hang_contact));
    add_sum(s, t, 2 * sizeof(double));
    add_all_gather(s, t, size, PART);
    add_all_gather(s, t, size, sizeof(uint16_t)); /* ports */
    for (int i = 0; i < 5; i++)                   /* is memory allocated? */
        add_sum(s, t, sizeof(double));
}

static void add_join(struct sent *s)
{
    add(s, 1, HELLO);
    add(s, 1, PROOF);
}

static void add_guests(struct sent *s, int n)
{
    add(s, n, ANSWER);
    add(s, n, CONFIRM);
}

static void add_world(struct sent *s, const struct plait_tcp_tree *t, int rank,
                      int size)
{
    bool tree = size - 1 > PLAIT_TCP_WAYS;

    if (rank == 0) {
        add_guests(s, size - 1);
        add(s, tree ? size - 1 - t->ways : 0, PLACE);
        return;
    }
    add_join(s);
    add(s, tree, CONTACT);
    if (t->parent > 0)
        add_join(s);
    add_guests(s, t->ways);
}

static void add_split(struct sent *s, const struct plait_tcp_tree *t, int rank,
                      int size, bool tp)
{
    int members = tp ? TP : size / TP;
    struct plait_tcp_tree group;

    add_all_gather(s, t, size, WISH);
    add_gather(s, t, CONTACT);
    add_scatter(s, t, PLACE);
    if (members == 1)
        return;
    plait_tcp_tree_init(&group, tp ? rank % TP : rank / TP, members);
    if (group.parent >= 0)
        add_join(s);
    add_guests(s, group.ways);
}

static struct sent expected(int phase, int rank, int size)
{
    struct plait_tcp_tree t;
    struct sent s = {0};

    plait_tcp_tree_init(&t, rank, size);
    if (phase == WORLD)
        add_world(&s, &t, rank, size);
    if (phase == GATHER)
        add_all_gather(&s, &t, size, GATHERED);
    if (phase == CONTACTS)
        add_contacts(&s, &t, size);
    if (phase == SUM)
        add_sum(&s, &t, 4 * sizeof(double));
    if (phase == ID)
        add_values(&s, t.ways, 128);
    if (phase == BARRIER)
        add_sum(&s, &t, sizeof(double));
    if (phase == SPLIT_TP || phase == SPLIT_DP)
        add_split(&s, &t, rank, size, phase == SPLIT_TP);
    return s;
}

/* -- what processes do ----------------------------------------------------- */

static int split(struct plait_comm *world, bool tp)
{
    int rank = plait_comm_rank(world);
    struct plait_error err;
    struct plait_comm *c;

    if (plait_comm_split(
            world,
            &(struct plait_split){.color = tp ? rank / TP : rank % TP,
                                  .key = rank,
                                  .name = tp ? "tp" : "dp"},
            &c, &err) < 0)
        return -1;
    plait_comm_destroy(c);
    return 0;
}

/* Returns 0 if this rank knows the last one's address and its node's name. */
static int meet(struct plait_comm *world)
{
    int rank = plait_comm_rank(world), last = plait_comm_size(world) - 1;
    struct plait_hang_contact mine = {.space = 1 + (uint64_t)(rank / TP)};
    struct plait_heartbeat_address at = {
        .has4 = 1, .v4 = {10, 0, 0, 1}, .port = (uint16_t)(1 + rank)};
    struct plait_contacts c;
    struct plait_error err;
    int rc = plait_contacts_meet(&c, world, &mine, &err);

    if (rc == 0) {
        strcpy(c.node[rank / TP].host, HOST);
        at.v4[3] = (unsigned char)(rank / TP);
        rc = plait_contacts_exchange(&c, world, &at, NULL, NULL, &err);
    }
    if (rc == 0 &&
        (c.at[last].port != 1 + last || c.at[last].v4[3] != last / TP % 256 ||
         strcmp(plait_contacts_host(&c, last), HOST) != 0))
        rc = -1;
    plait_contacts_clear(&c);
    return rc;
}

static int run_phase(int phase, struct plait_comm *world, char *room)
{
    double values[4] = {1};
    char text[128] = "";

    switch (phase) {
    case GATHER:
        return plait_comm_host_all_gather(world, text, room, GATHERED);
    case CONTACTS:
        return meet(world);
    case SUM:
        return plait_comm_host_all_reduce(world, values, 4, PLAIT_SUM);
    case ID:
        return plait_comm_host_broadcast(world, text, sizeof(text), 0);
    case BARRIER:
        return plait_comm_barrier(world);
    default:
        return split(world, phase == SPLIT_TP);
    }
}

/* arg: struct sent (*)[NPHASES] for all ranks. */
static int run_rank(const struct plait_launch *launch, void *arg)
{
    struct sent *counts = ((struct sent(*)[NPHASES])arg)[launch->rank];
    char *room = malloc((size_t)launch->world_size * GATHERED);
    struct plait_error err;
    struct plait_comm *world = plait_tcp_create(launch, 200, &err);
    int rc = world && room ? 0 : 1;

    if (!world)
        diag("rank %d: %s", launch->rank, err.text);
    counts[WORLD] = sent;
    for (int i = GATHER; rc == 0 && i < NPHASES; i++) {
        sent = (struct sent){0};
        rc = run_phase(i, world, room) < 0;
        counts[i] = sent;
    }
    plait_comm_destroy(world);
    free(room);
    return rc;
}

/* Fills *counts [n][NPHASES]; returns how many ranks failed. */
static int run_ranks(int n, struct sent (**counts)[NPHASES])
{
    *counts = mmap(NULL, (size_t)n * sizeof(**counts), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (*counts == MAP_FAILED)
        abort();
    return run_processes(n, run_rank, *counts);
}

/* -- the test -------------------------------------------------------------- */

static void test_counts(void)
{
    struct sent(*counts)[NPHASES];
    int failed = run_ranks(RANKS, &counts);

    ok(failed == 0, "%d ranks meet and talk", RANKS);
    for (int i = 0; failed == 0 && i < NPHASES; i++) {
        /* On a busy machine a rank may have to join again, and one that has
         * waited for long says so by a head alone. */
        bool joins = i == WORLD || i == SPLIT_TP || i == SPLIT_DP;
        int bad = 0;

        for (int r = 0; r < RANKS; r++) {
            struct sent e = expected(i, r, RANKS), *c = &counts[r][i];

            bad += joins ? c->messages < e.messages || c->bytes < e.bytes
                         : c->messages < e.messages ||
                               c->bytes - e.bytes !=
                                   HEAD * (c->messages - e.messages);
        }
        ok(bad == 0, "%s: as the tree says", phases[i]);
    }
}

static void test_large(void)
{
    uint64_t messages = 0, most = 0, root = 0;

    for (int r = 0; r < LARGE; r++) {
        struct sent e = expected(GATHER, r, LARGE);

        messages = e.messages > messages ? e.messages : messages;
        most = e.bytes > most ? e.bytes : most;
        root = r == 0 ? e.bytes : root;
    }
    ok(messages <= 2 * (PLAIT_TCP_WAYS + 1) &&
           most <= (UINT64_C(120) * LARGE + HEAD) * (PLAIT_TCP_WAYS + 1),
       "%d ranks: no rank sends more than %d messages of a head and values, "
       "nor its data more often",
       LARGE, PLAIT_TCP_WAYS + 1);
    ok(root == (UINT64_C(120) * LARGE + HEAD) * PLAIT_TCP_WAYS,
       "nor does rank 0, which as a star sent it %d times", LARGE - 1);
}

/* -- the table ------------------------------------------------------------- */

static void print_row(int n, int phase, struct sent (*counts)[NPHASES])
{
    struct sent root = {0}, most = {0};
    double mean = 0;

    for (int r = 0; r < n; r++) {
        struct sent s = counts ? counts[r][phase] : expected(phase, r, n);

        mean += (double)s.bytes / n;
        if (r == 0)
            root = s;
        else if (s.bytes > most.bytes)
            most.bytes = s.bytes;
        if (r > 0 && s.messages > most.messages)
            most.messages = s.messages;
    }
    printf("| %s | %d%s | %llu | %llu | %llu | %llu | %.0f |\n", phases[phase],
           n, counts ? "" : ", modelled", (unsigned long long)root.messages,
           (unsigned long long)root.bytes, (unsigned long long)most.messages,
           (unsigned long long)most.bytes, mean);
}

static int print_table(int nsizes, char **sizes)
{
    struct sent(*counts[nsizes])[NPHASES];

    for (int i = 0; i < nsizes; i++) {
        int failed = run_ranks(atoi(sizes[i]), &counts[i]);

        if (failed > 0) {
            fprintf(stderr, "%d of %s ranks failed\n", failed, sizes[i]);
            return 1;
        }
    }
    printf("| | ranks | rank 0 sends: messages | bytes | another rank, at "
           "most: messages | bytes | bytes of a rank, mean |\n"
           "|---|---|---|---|---|---|---|\n");
    for (int phase = 0; phase < NPHASES; phase++) {
        for (int i = 0; i < nsizes; i++)
            print_row(atoi(sizes[i]), phase, counts[i]);
        print_row(LARGE, phase, NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (atoi(argv[i]) < TP || atoi(argv[i]) % TP > 0) {
            fprintf(stderr, "%s: ranks are a multiple of %d\n", argv[i], TP);
            return 2;
        }
    if (argc > 1)
        return print_table(argc - 1, argv + 1);
    test_counts();
    test_large();
    return done_testing();
}
