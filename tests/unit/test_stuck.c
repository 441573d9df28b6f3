/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/stuck/judge.h"
#include "runtime/stuck/look.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/base/clock.h"

/* Which rank is guilty, of eight ranks with tp 2, pp 2, dp 2. Each has the
 * world (group 0), its tp group (1), its pp group (2) and its dp group (3). */
enum { N = 8, WORLD = 0, TP, PP, DP };

static struct plait_stuck_rank rank[N];
static struct plait_verdict verdict;
static char text[1000];

static void add_group(struct plait_stuck_rank *r, const char *name, int first,
                      int index)
{
    struct plait_stuck_group *g = &r->group[r->ngroups++];

    snprintf(g->name, sizeof(g->name), "%s", name);
    g->first = first;
    g->index = index;
    g->size = first == 0 && !strcmp(name, "world") ? N : 2;
}

/* Ranks that are training and have made 640 collectives and 9 exchanges of
 * control values. */
static void start(void)
{
    memset(rank, 0, sizeof(rank));
    for (int i = 0; i < N; i++) {
        struct plait_stuck_rank *r = &rank[i];

        r->rank = i;
        r->gpu = i % 4;
        r->pid = 100 + i;
        r->waits = -1;
        r->phase = PLAIT_PHASE_FORWARD;
        r->phase_age = 1;
        snprintf(r->host, sizeof(r->host), "n%d", i / 4);
        add_group(r, "world", 0, i);
        add_group(r, "tp", i & ~1, i & 1);
        add_group(r, "pp", i & ~4, i / 4);
        add_group(r, "dp", i & ~2, i / 2 % 2);
        for (int g = 0; g < r->ngroups; g++) {
            r->group[g].entered[PLAIT_SERIES_DATA] = 640;
            r->group[g].entered[PLAIT_SERIES_CONTROL] = 9;
        }
    }
}

static void wait_in(int i, int group, enum plait_op op, uint64_t bytes,
                    double age)
{
    struct plait_stuck_rank *r = &rank[i];
    enum plait_series s = plait_op_series(op);
    uint64_t number = ++r->group[group].entered[s];

    r->waits = group;
    r->in.tag = plait_op_tag(number, op);
    r->in.bytes = bytes;
    r->wait_age = age;
    r->phase_age = age;
    if (s != PLAIT_SERIES_MESSAGE)
        r->group[group].last[s][number % PLAIT_RECORD_LAST] = r->in;
}

static void wait_for_peer(int i, enum plait_op op, int peer)
{
    wait_in(i, PP, op, 4096, 30);
    rank[i].peer = peer;
}

static int judged(enum plait_verdict_kind kind, int guilty)
{
    int is;

    memset(&verdict, 0, sizeof(verdict));
    plait_stuck_judge(rank, N, &verdict);
    plait_stuck_sentence(rank, N, &verdict, 1000000000, text, sizeof(text));
    is = verdict.kind == kind && verdict.guilty == guilty;
    if (!is)
        diag("kind %d, guilty %d", verdict.kind, verdict.guilty);
    return is;
}

static int says(const char *part)
{
    if (strstr(text, part))
        return 1;
    diag("\"%s\" is not in: %s", part, text);
    return 0;
}

/* All other ranks wait, directly or not, for rank 5. */
static void all_wait_for_5(void)
{
    start();
    wait_in(4, TP, PLAIT_OP_ALL_REDUCE, 8192, 31); /* for 5 */
    wait_for_peer(0, PLAIT_OP_RECV, 1);            /* for 4 */
    wait_for_peer(1, PLAIT_OP_SEND, 1);            /* for 5 */
    wait_in(6, DP, PLAIT_OP_REDUCE_SCATTER, 1, 30);
    wait_in(7, DP, PLAIT_OP_REDUCE_SCATTER, 1, 30);
    wait_in(2, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 24, 29);
    wait_in(3, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 24, 29);
}

static void test_behind(void)
{
    all_wait_for_5();
    rank[5].phase = PLAIT_PHASE_DATA;
    rank[5].phase_age = 60;
    snprintf(rank[5].where, sizeof(rank[5].where), "read of /data/x.bin");
    setenv("TZ", "UTC", 1);
    ok(judged(PLAIT_VERDICT_BEHIND, 5) && verdict.waiting == 7,
       "the rank that all wait for, at last, is found along the groups");
    ok(says("rank 5 (n1, GPU 1, process 105) never entered "), "it is named");
    ok(says("; it is in the data loader since 01:45:40 (read of /data/x.bin)"),
       "with where it is, and since when");
    ok(says("; 7 other ranks wait since 01:46:09"), "and how many wait");
    rank[5].phase_age = 0.1;
    rank[5].phase = PLAIT_PHASE_FORWARD;
    ok(judged(PLAIT_VERDICT_BEHIND, 5), "a rank that is only slow as well");
    start();
    for (int i = 0; i < N; i++)
        if (i != 3 && i != 6)
            wait_in(i, WORLD, PLAIT_OP_BARRIER, 0, 20);
    rank[3].phase_age = 2;
    rank[6].phase_age = 20;
    ok(judged(PLAIT_VERDICT_BEHIND, 6) && says("barrier 10 of the world"),
       "of two that are behind, the one that stands still for longer");
    rank[3].state = PLAIT_STUCK_UNKNOWN;
    rank[3].ngroups = 0;
    ok(judged(PLAIT_VERDICT_BEHIND, 6), "not one that nothing is known of");
}

static void test_states(void)
{
    all_wait_for_5();
    rank[5].state = PLAIT_STUCK_STOPPED;
    ok(judged(PLAIT_VERDICT_STATE, 5) && says("is stopped by a signal; it is "
                                              "in the forward pass since"),
       "a stopped rank, and where it was");
    rank[5].waits = TP;
    rank[5].in.tag = plait_op_tag(640, PLAIT_OP_ALL_REDUCE);
    ok(judged(PLAIT_VERDICT_STATE, 5) && says("all-reduce 640 of its tp group"),
       "a rank that is stopped in a collective");
    rank[2].state = PLAIT_STUCK_DEAD;
    ok(judged(PLAIT_VERDICT_STATE, 2) && says("has ended"),
       "a dead one before a stopped one");
    all_wait_for_5();
    for (int i = 4; i < N; i++) {
        rank[i].state = PLAIT_STUCK_SILENT;
        rank[i].ngroups = 0;
        rank[i].waits = -1;
    }
    ok(judged(PLAIT_VERDICT_STATE, 4) && verdict.alike == 3 &&
           says("and 3 more have not been heard of since"),
       "a node that is not heard of any more");
}

static void test_messages(void)
{
    start();
    wait_for_peer(2, PLAIT_OP_RECV, 1); /* of rank 6 */
    wait_in(3, TP, PLAIT_OP_ALL_REDUCE, 8192, 30);
    rank[2].group[TP].entered[PLAIT_SERIES_DATA] = 640;
    rank[6].phase = PLAIT_PHASE_SAVE;
    ok(judged(PLAIT_VERDICT_MESSAGE, 6) &&
           says("does not send a message of 4096 bytes to rank 2 in their pp "
                "group; it is saving a checkpoint"),
       "a message that does not come");
    wait_for_peer(6, PLAIT_OP_RECV, 0);
    ok(judged(PLAIT_VERDICT_CYCLE, 2) || judged(PLAIT_VERDICT_CYCLE, 6),
       "two that wait for each other's message");
    start();
    wait_for_peer(6, PLAIT_OP_RECV, 0); /* of rank 2 */
    rank[2].state = PLAIT_STUCK_UNKNOWN;
    rank[2].ngroups = 0;
    ok(judged(PLAIT_VERDICT_MESSAGE, 2), "a message of the one unknown rank");
    rank[3].state = PLAIT_STUCK_UNKNOWN;
    rank[3].ngroups = 0;
    ok(judged(PLAIT_VERDICT_TRANSFER, -1),
       "of two unknown ranks neither is blamed");
    start();
    wait_for_peer(2, PLAIT_OP_RECV, 1); /* of rank 6 */
    rank[0].state = PLAIT_STUCK_UNKNOWN;
    rank[0].ngroups = 0;
    for (int i = 0; i < N; i++) /* their pp groups are one of four */
        if (rank[i].ngroups && i % 2 == 0) {
            rank[i].group[PP].first = 0;
            rank[i].group[PP].size = 4;
            rank[i].group[PP].index = i / 2;
        }
    rank[2].peer = 2; /* rank 4 */
    rank[4].phase = PLAIT_PHASE_SAVE;
    ok(judged(PLAIT_VERDICT_MESSAGE, 4) && says("rank 4 (n1, GPU 0, process "
                                                "104) does not send"),
       "a message within a group of which another rank is unknown");
}

static void test_mismatch(void)
{
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, i == 6 ? 16 : 24, 10);
    ok(judged(PLAIT_VERDICT_MISMATCH, 6) &&
           says("entered a control all-reduce of 16 bytes where rank 0 (n0, "
                "GPU 0, process 100) is in control all-reduce 10 of the world, "
                "of 24 bytes"),
       "other bytes than the rest");
    start();
    wait_in(4, TP, PLAIT_OP_ALL_REDUCE, 8192, 10);
    wait_in(5, TP, PLAIT_OP_BROADCAST, 4096, 10);
    ok(judged(PLAIT_VERDICT_MISMATCH, 5) && says("entered a broadcast of 4096"),
       "another operation than its peer");
    /* Rank 5 skipped one collective, entered the next, and is ahead. */
    start();
    wait_in(4, TP, PLAIT_OP_ALL_REDUCE, 8192, 10);
    wait_in(5, TP, PLAIT_OP_ALL_REDUCE, 4, 10);
    wait_in(5, DP, PLAIT_OP_ALL_REDUCE, 8, 10);
    wait_in(7, DP, PLAIT_OP_ALL_REDUCE, 8, 10);
    ok(judged(PLAIT_VERDICT_MISMATCH, 5), "that it has left meanwhile");
    /* Rank 7 left a barrier too early and waits in its next collective. */
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD, PLAIT_OP_BARRIER, 0, 10);
    rank[7].waits = TP;
    wait_in(7, TP, PLAIT_OP_ALL_REDUCE, 8, 10);
    ok(judged(PLAIT_VERDICT_LEFT, 7) &&
           says("has left barrier 10 of the world, which the others wait "
                "in; it waits in all-reduce 641 of its tp group"),
       "a rank that passed over a collective");
}

/* Rank 2 skips a sum in its tp group; rank 3 waits for it there. */
static void test_circles(void)
{
    start();
    for (int i = 0; i < N; i++)
        if (i != 2)
            wait_in(i, TP, PLAIT_OP_ALL_REDUCE, 8192, 10);
    for (int i = 0; i < N; i++)
        if (i != 3)
            wait_in(i, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 24, 9);
    ok(judged(PLAIT_VERDICT_BEHIND, 2) &&
           says("never entered all-reduce 641 of its tp group; it waits in "
                "control all-reduce 10 of the world"),
       "a collective that one rank passed over");
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, i == 2 ? DP : TP, PLAIT_OP_ALL_REDUCE, 8192, 10);
    for (int i = 0; i < N; i++)
        if (i != 2 && i != 3)
            wait_in(i, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 24, 9);
    ok(judged(PLAIT_VERDICT_BEHIND, 2), "one that is where no other was");
}

static void test_others(void)
{
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, TP, PLAIT_OP_ALL_GATHER, 64, 10);
    ok(judged(PLAIT_VERDICT_TRANSFER, -1) &&
           says("have entered all-gather 641 of the tp group of rank 0") &&
           says("; 8 ranks wait"),
       "a transfer that all have entered");
    start();
    wait_in(0, TP, PLAIT_OP_ALL_REDUCE, 1, 10);
    wait_in(1, DP, PLAIT_OP_ALL_REDUCE, 1, 10);
    wait_in(3, TP, PLAIT_OP_ALL_REDUCE, 1, 10);
    wait_in(2, DP, PLAIT_OP_ALL_REDUCE, 1, 10);
    plait_stuck_judge(rank, N, &verdict);
    ok(verdict.kind == PLAIT_VERDICT_CYCLE, "ranks in a circle");
    start();
    rank[7].phase_age = 9;
    rank[7].phase = rank[2].phase = PLAIT_PHASE_OPEN;
    ok(judged(PLAIT_VERDICT_ALONE, 7) && says("it is opening its data") &&
           says(", as is 1 more"),
       "nobody waits");
    ok(plait_stuck_judge(rank, 0, &verdict) == 0 &&
           verdict.kind == PLAIT_VERDICT_NOTHING,
       "no rank at all");
}

/* Only rank 7 got the last message of a collective; it went on and waits in the
 * next one. */
static void test_links(void)
{
    start();
    for (int i = 0; i < N; i++)
        wait_in(i, WORLD, PLAIT_OP_CONTROL_ALL_REDUCE, 24, 10);
    wait_in(7, TP, PLAIT_OP_ALL_REDUCE, 8, 10);
    ok(judged(PLAIT_VERDICT_LEFT, 7), "one is ahead of the others");
    rank[0].unanswered = rank[3].unanswered = 1;
    ok(judged(PLAIT_VERDICT_LINKS, -1) &&
           says("links are down: no machine acknowledges what rank 0 (n0, GPU "
                "0, process 100) and 1 more sent; 8 ranks wait since"),
       "but where messages are not acknowledged it is nobody's fault");
    rank[6].state = PLAIT_STUCK_UNKNOWN;
    rank[6].waits = -1;
    rank[6].group[WORLD].entered[PLAIT_SERIES_CONTROL] = 9;
    ok(judged(PLAIT_VERDICT_LINKS, -1), "nor of one that nothing is known of");
    rank[6].state = PLAIT_STUCK_RUNS;
    ok(judged(PLAIT_VERDICT_BEHIND, 6), "one that does not wait is waited for");
    rank[6].state = PLAIT_STUCK_STOPPED;
    ok(judged(PLAIT_VERDICT_STATE, 6), "and one that is stopped");
}

/* Arbitrary numbers, as anything may come over a network. */
static void test_any(void)
{
    int bad = 0;

    srand(1);
    for (int k = 0; k < 20000; k++) {
        start();
        for (int i = 0; i < N; i++) {
            int group = rand() % 4;

            if (rand() % 3)
                wait_in(i, group, (enum plait_op)(rand() % PLAIT_NOPS),
                        (uint64_t)rand() % 2, rand() % 9);
            rank[i].peer = rand() % 4 - 1;
            rank[i].unanswered = rand() % 16 - 14;
            if (rand() % 16 == 0)
                rank[i].state = (enum plait_stuck_state)(rand() % 5);
            if (rand() % 16 == 0)
                rank[i].ngroups = 0;
        }
        bad += plait_stuck_judge(rank, N, &verdict) < 0 ||
               verdict.kind == PLAIT_VERDICT_NOTHING || verdict.guilty >= N;
        plait_stuck_sentence(rank, N, &verdict, 0, text, 100);
        bad += strlen(text) > 99 || strlen(text) < 10;
    }
    ok(bad == 0, "any 20000 states have a verdict and a line that fits");
}

/* -- records ------------------------------------------------------------- */

static void note_training(struct plait_record *r)
{
    struct plait_record_group *world, *tp;
    uint64_t tag;

    r->rank = 3;
    r->world = N;
    world = plait_record_add_group(r, "world", 0, N, 3);
    tp = plait_record_add_group(r, "tp", 2, 2, 1);
    plait_record_step(r, 7);
    plait_record_enter(world, PLAIT_OP_BARRIER, 0, 0, plait_clock_now());
    plait_record_leave(world);
    tag = plait_record_enter(tp, PLAIT_OP_ALL_REDUCE, 64, 0, plait_clock_now());
    plait_record_leave(tp);
    plait_record_enter(tp, PLAIT_OP_ALL_GATHER, 32, 0, plait_clock_now());
    plait_record_leave(tp);
    plait_record_phase(r, PLAIT_PHASE_BACKWARD, plait_clock_now());
    plait_record_wait(tp, tag, 64, 0, plait_clock_now());
    r->magic = PLAIT_RECORD_MAGIC;
}

static void test_record(void)
{
    struct plait_stuck_rank seen;
    struct plait_record *r;
    const struct plait_record *copy;
    int fd = -1;

    r = plait_record_create(&fd);
    if (!r) {
        skip("no memfd");
        return;
    }
    ok(!plait_record_open(getpid(), fd), "a record that is not complete");
    note_training(r);
    copy = plait_record_open(getpid(), fd);
    if (!ok(copy != NULL, "a record is found by process and descriptor"))
        return;
    plait_stuck_look(copy, &seen);
    ok(seen.rank == 3 && seen.step == 7 && seen.pid == getpid() &&
           seen.state == PLAIT_STUCK_RUNS && seen.phase == PLAIT_PHASE_BACKWARD,
       "it says who and where");
    ok(seen.waits == 1 && seen.in.tag == plait_op_tag(1, PLAIT_OP_ALL_REDUCE) &&
           seen.in.bytes == 64 && seen.group[1].entered[0] == 2 &&
           seen.group[0].entered[PLAIT_SERIES_CONTROL] == 1 &&
           seen.group[1].last[0][2].bytes == 32 && seen.group[0].index == 3 &&
           seen.group[1].index == 1,
       "and what it entered and waits in");
    plait_record_close(copy);
    plait_record_destroy(r, fd);
    ok(!plait_record_open(getpid(), fd), "and is gone when it is destroyed");
    ok(!plait_record_add_group(NULL, "tp", 0, 2, 0), "no record, no group");
}

static void test_process(void)
{
    char where[128], path[TEMP_PATH];
    int to[2], seen = 0;
    pid_t pid;

    if (!ok(pipe(to) == 0 && mkdtemp(temp_path(path, "stuck")), "a pipe"))
        return;
    pid = fork();
    if (pid == 0) {
        char c;

        _exit(read(to[0], &c, 1) == 1 ? 0 : 1);
    }
    for (int k = 0; k < 24000 && !seen; k++) {
        plait_stuck_where(pid, pid, where, sizeof(where));
        seen = !strncmp(where, "read of pipe:", 13);
        if (!seen)
            usleep(10000);
        if (!where[0] && access("/proc/self/syscall", R_OK) < 0)
            break;
    }
    if (seen || access("/proc/self/syscall", R_OK) == 0)
        ok(seen, "what a process is blocked in");
    else
        skip("this kernel does not tell system calls");
    kill(pid, SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    ok(plait_stuck_process_state(pid) == 'T', "a stopped process");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ok(plait_stuck_process_state(pid) == 'X', "one that has ended");
    rmdir(path);
}

int main(void)
{
    test_behind();
    test_states();
    test_messages();
    test_mismatch();
    test_circles();
    test_others();
    test_links();
    test_any();
    test_record();
    test_process();
    return done_testing();
}
