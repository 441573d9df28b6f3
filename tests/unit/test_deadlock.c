/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "runtime/stuck/proof.h"
#include "tap.h"

/* When ranks are known never to go on, of four ranks in two pairs. Each has the
 * world (group 0), its tp group (1) and its pp group (2). */
enum { N = 4, WORLD = 0, TP, PP };

static struct plait_stuck_rank rank[N];
static struct plait_stuck_proof proof;

static void add_group(struct plait_stuck_rank *r, const char *name, int first,
                      int size, int index)
{
    struct plait_stuck_group *g = &r->group[r->ngroups++];

    snprintf(g->name, sizeof(g->name), "%s", name);
    g->first = first;
    g->size = size;
    g->index = index;
    g->entered[PLAIT_SERIES_DATA] = 40;
    g->entered[PLAIT_SERIES_CONTROL] = 9;
}

static void start(void)
{
    memset(rank, 0, sizeof(rank));
    for (int i = 0; i < N; i++) {
        rank[i].rank = i;
        rank[i].gpu = rank[i].waits = -1;
        rank[i].phase = PLAIT_PHASE_FORWARD;
        add_group(&rank[i], "world", 0, N, i);
        add_group(&rank[i], "tp", i & ~1, 2, i & 1);
        add_group(&rank[i], "pp", i & ~2, 2, i / 2);
    }
}

static void wait_in(int i, int group, enum plait_op op, uint64_t bytes)
{
    struct plait_stuck_rank *r = &rank[i];
    enum plait_series s = plait_op_series(op);
    uint64_t number = ++r->group[group].entered[s];

    r->waits = group;
    r->in.tag = plait_op_tag(number, op);
    r->in.bytes = bytes;
    r->wait_age = 6;
    if (s != PLAIT_SERIES_MESSAGE)
        r->group[group].last[s][number % PLAIT_RECORD_LAST] = r->in;
}

/* How many ranks are known never to go on. */
static int proved(void)
{
    int n;

    plait_stuck_proof_clear(&proof);
    n = plait_stuck_prove(rank, N, &proof) < 0 ? -1 : proof.n;
    return n;
}

static int says(const char *part)
{
    struct plait_verdict verdict;
    char text[1000] = "";

    if (plait_stuck_judge(proof.rank, proof.n, &verdict) == 0)
        plait_stuck_sentence(proof.rank, proof.n, &verdict, 0, text,
                             sizeof(text));
    if (strstr(text, part))
        return 1;
    diag("\"%s\" is not in: %s", part, text);
    return 0;
}

/* Rank 2 has skipped a sum of its pair, in which rank 3 waits; all others wait
 * in the next operation of the world. */
static void skip_one(void)
{
    start();
    wait_in(0, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 8);
    wait_in(1, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 8);
    wait_in(2, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 8);
    for (int i = 0; i < 2; i++)
        rank[i].group[TP].entered[PLAIT_SERIES_DATA]++;
    wait_in(3, TP, PLAIT_OP_ALL_REDUCE, 4096);
}

static void test_circles(void)
{
    uint64_t mark;

    skip_one();
    ok(proved() == N && says("rank 2 never entered all-reduce 41 of its tp "
                             "group; it waits in control all-reduce 10"),
       "a rank that has skipped a sum and waits for who waits for it");
    mark = proof.mark;
    ok(proved() == N && proof.mark == mark, "the mark is the same later");
    rank[2].wait_age = rank[3].wait_age = 8;
    ok(proved() == N && proof.mark == mark, "... however much later");
    wait_in(2, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 8);
    ok(proved() == N && proof.mark != mark, "... until a rank moves");
    skip_one();
    rank[2].waits = -1;
    ok(proved() == 0, "not while that rank is busy, as with a slow disk");
    skip_one();
    rank[2].state = PLAIT_STUCK_STOPPED;
    ok(proved() == 0, "nor while it is stopped");
    skip_one();
    rank[0].state = PLAIT_STUCK_STOPPED;
    ok(proved() == 3, "a rank beside them that is stopped changes nothing");
    skip_one();
    rank[2].group[TP].entered[PLAIT_SERIES_DATA]++;
    ok(proved() == 0, "nor where it has entered the sum: it may be slow");
    skip_one();
    rank[2].state = PLAIT_STUCK_UNKNOWN;
    rank[2].waits = -1;
    rank[2].ngroups = 0;
    ok(proved() == 0, "nor where nothing is known of it");
    start();
    for (int i = 0; i < 3; i++)
        wait_in(i, WORLD, PLAIT_OP_BARRIER, 0);
    ok(proved() == 0, "ranks that wait for one that saves or evaluates");
    wait_in(3, TP, PLAIT_OP_ALL_GATHER, 64);
    ok(proved() == N, "but for one that waits for them");
}

static void test_mismatch(void)
{
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD,
                i == 1 ? PLAIT_OP_BARRIER : PLAIT_OP_CONTROL_ALL_REDUCE, 0);
    ok(proved() == N && says("rank 1 entered a barrier of 0 bytes where rank"),
       "a barrier in place of a sum");
    rank[1].waits = -1;
    ok(proved() == N && says("rank 1 entered a barrier of 0 bytes where rank"),
       "... that its rank has left");
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD, PLAIT_OP_ALL_REDUCE, i == 3 ? 4 : 8);
    ok(proved() == N && says("rank 3 entered an all-reduce of 4 bytes"),
       "a sum of another size");
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD, PLAIT_OP_ALL_REDUCE, 8);
    ok(proved() == 0, "sums that do not move are a link's fault");
}

static void test_messages(void)
{
    start();
    wait_in(0, PP, PLAIT_OP_RECV, 64);
    rank[0].peer = 1; /* rank 2 */
    wait_in(2, PP, PLAIT_OP_RECV, 64);
    rank[2].peer = 0;
    ok(proved() == 0, "what two ranks expect of each other may be under way");
    start();
    wait_in(0, PP, PLAIT_OP_RECV, 64);
    rank[0].peer = 1;
    wait_in(1, TP, PLAIT_OP_ALL_REDUCE, 8);
    wait_in(2, WORLD, PLAIT_OP_BARRIER, 0);
    ok(proved() == 3, "not from one that has sent nothing and waits for them");
}

/* Groups that are made anew, as for trials before the first step. */
static void test_groups_again(void)
{
    start();
    for (int i = 0; i < N; i++)
        add_group(&rank[i], "tp", i & ~1, 2, i & 1);
    for (int i = 0; i < N; i++) {
        rank[i].group[TP + 2].entered[PLAIT_SERIES_DATA] = 50;
        wait_in(i, TP + 2, PLAIT_OP_ALL_REDUCE, 8);
    }
    ok(proved() == 0, "two groups of one name are told apart");
    start();
    for (int i = 0; i < N; i++) {
        rank[i].group[PP].first = rank[i].group[TP].first;
        snprintf(rank[i].group[PP].name, sizeof(rank[i].group[PP].name), "tp");
        rank[i].group[PP].size = 4;
        wait_in(i, PP, PLAIT_OP_ALL_REDUCE, 8);
    }
    ok(proved() == 0, "... by their sizes too");
}

static void test_any(void)
{
    int bad = 0;

    srand(1);
    for (int k = 0; k < 20000; k++) {
        start();
        for (int i = 0; i < N; i++) {
            if (rand() % 4)
                wait_in(i, rand() % 3, (enum plait_op)(rand() % PLAIT_NOPS),
                        (uint64_t)rand() % 2);
            rank[i].peer = rand() % 4 - 1;
            if (rand() % 8 == 0)
                rank[i].state = (enum plait_stuck_state)(rand() % 5);
            if (rand() % 16 == 0)
                rank[i].ngroups = 0;
        }
        bad += proved() < 0 || proof.n == 1 || proof.n > N;
    }
    ok(bad == 0, "of any 20000 states no rank alone waits for itself");
}

int main(void)
{
    test_circles();
    test_mismatch();
    test_messages();
    test_groups_again();
    test_any();
    plait_stuck_proof_clear(&proof);
    return done_testing();
}
