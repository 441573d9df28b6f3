/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/stuck/beat.h"
#include "runtime/train/watchdog/heartbeat.h"
#include "tap.h"
#include "test_seed.h"

/* -- how fast news spreads, without a network ------------------------------ */

static uint64_t state;

static double draw(void)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (double)(state >> 11) / 9007199254740992.0;
}

struct sim {
    struct plait_beat_table *table;
    double *phase; /* at what time in a round each node sends */
    int n;
};

static void send_one(struct sim *s, int from, int64_t round, double now)
{
    unsigned char body[2 * PLAIT_BEAT_NODES], message[PLAIT_BEAT_MOST];
    struct plait_beat beat = {.kind = PLAIT_BEAT_ALIVE,
                              .node = from,
                              .run = 1,
                              .number = (uint64_t)round + 1};
    int to = plait_beat_target(s->n, from, round), size;

    for (int first = 0; first < s->n; first += PLAIT_BEAT_NODES) {
        struct plait_beat got;

        beat.first = first;
        beat.count =
            s->n - first < PLAIT_BEAT_NODES ? s->n - first : PLAIT_BEAT_NODES;
        beat.body = body;
        beat.size = 2 * (size_t)beat.count;
        beat.number = (uint64_t)round * 1000 + (uint64_t)first + 1;
        plait_beat_table_tell(&s->table[from], first, beat.count, now, body);
        size = plait_beat_pack(&beat, message, sizeof(message));
        if (size < 0 || plait_beat_unpack(message, (size_t)size, &got) < 0 ||
            !plait_beat_table_take(&s->table[to], &got, now))
            ok(0, "a message of node %d", from);
    }
}

/* After so many seconds without node `dead`: *oldest, the longest time since
 * any live node has heard of another live one; *youngest, the shortest since
 * any has heard of `dead`. */
static void simulate(int n, int dead, double seconds, double *oldest,
                     double *youngest)
{
    struct sim s = {calloc((size_t)n, sizeof(*s.table)),
                    calloc((size_t)n, sizeof(*s.phase)), n};
    int64_t rounds = (int64_t)(seconds / PLAIT_BEAT_ROUND_S);
    double end = (double)rounds * PLAIT_BEAT_ROUND_S;

    for (int i = 0; i < n; i++) {
        plait_beat_table_init(&s.table[i], n, i, 0);
        s.phase[i] = draw() * PLAIT_BEAT_ROUND_S;
    }
    /* In each round nodes send in the order of their numbers and not of their
     * times, which slows news down by at most a round per hop. */
    for (int64_t k = 0; k < rounds; k++)
        for (int i = n - 1; i >= 0; i--)
            if (i != dead)
                send_one(&s, i, k, (double)k * PLAIT_BEAT_ROUND_S + s.phase[i]);
    *oldest = 0;
    *youngest = end;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n && i != dead; j++) {
            double age = end - s.table[i].heard[j];

            if (j == dead && age < *youngest)
                *youngest = age;
            if (j != dead && j != i && age > *oldest)
                *oldest = age;
        }
    }
    for (int i = 0; i < n; i++)
        plait_beat_table_clear(&s.table[i]);
    free(s.table);
    free(s.phase);
}

static void test_spreading(void)
{
    static const int sizes[] = {2, 3, 4, 7, 16, 100, 701};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int n = sizes[i], dead = (int)(draw() * n);
        double oldest, youngest, time = 2 * plait_beat_limit(n) + 2;

        simulate(n, dead, time, &oldest, &youngest);
        ok(oldest < plait_beat_limit(n),
           "%d nodes, one message a round each: nobody alive is silent "
           "(%.2f s of %.2f)",
           n, oldest, plait_beat_limit(n));
        ok(n == 2 || youngest > plait_beat_limit(n),
           "... and one that is dead is to all (%.2f s)", youngest);
    }
}

static void test_messages(void)
{
    unsigned char body[] = {9, 0, 9, 0}, bytes[100];
    struct plait_beat beat = {.kind = PLAIT_BEAT_ALIVE,
                              .run = 7,
                              .number = 5,
                              .node = 1,
                              .count = 2,
                              .body = body,
                              .size = 4},
                      got;
    struct plait_beat_table t;
    int size = plait_beat_pack(&beat, bytes, sizeof(bytes));

    ok(size == 40 && plait_beat_unpack(bytes, 40, &got) == 0 &&
           got.number == 5 && got.run == 7 && got.count == 2,
       "a message comes out as it went in");
    ok(plait_beat_pack(&beat, bytes, 39) == -1, "... if there is room");
    ok(plait_beat_unpack(bytes, 39, &got) == -1 &&
           plait_beat_unpack(bytes, 41, &got) == -1,
       "... and no more or less of it");
    bytes[32] = 99;
    ok(plait_beat_unpack(bytes, 40, &got) == -1, "nor of another kind");
    plait_beat_table_init(&t, 3, 0, 10);
    ok(plait_beat_table_take(&t, &beat, 20) && t.heard[1] == 20 &&
           t.heard[2] == 10,
       "who sends is alive, and nobody is older than before");
    body[2] = 0;
    body[3] = 7;
    beat.number = 6;
    ok(plait_beat_table_take(&t, &beat, 20.5) && t.speaker[1] == 7,
       "... and says itself who speaks for it");
    beat.number = 5;
    ok(!plait_beat_table_take(&t, &beat, 21), "a message counts once");
    beat.number = 9;
    beat.node = 3;
    ok(!plait_beat_table_take(&t, &beat, 22), "a node that there is not");
    beat.node = 0;
    ok(!plait_beat_table_take(&t, &beat, 22), "... or that is oneself");
    plait_beat_table_clear(&t);
}

/* -- several nodes in one process ------------------------------------------ */

enum { NODES = 3, WORLD = 4 }; /* the second node has two ranks */

static const int node_of[WORLD] = {0, 1, 1, 2};
static struct plait_heartbeat *beat[WORLD];
static struct plait_heartbeat_address at[WORLD];
static _Atomic int silent_rank = -1;

struct self {
    int rank;
};

static bool speaks(void *arg)
{
    int rank = ((struct self *)arg)->rank;

    return rank != silent_rank && (rank != 2 || silent_rank == 1);
}

static void look(void *arg, int rank, struct plait_stuck_rank *out)
{
    (void)arg;
    memset(out, 0, sizeof(*out));
    out->rank = rank;
    out->waits = -1;
    out->step = 100 + rank;
}

static void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Only one rank of the second node sends heartbeats; the other is mute. */
static bool is_mute(int rank)
{
    return rank == (silent_rank == 1 ? 1 : 2);
}

/* Waits however busy the machine is; 0: it hangs. */
static int wait_for(bool (*what)(void))
{
    for (int i = 0; i < 4800; i++) {
        if (what())
            return 1;
        pause_ms(50);
    }
    return 0;
}

static bool all_hear_all(void)
{
    for (int r = 0; r < WORLD; r++)
        for (int n = 0; n < NODES; n++)
            if (!is_mute(r) && beat[r] &&
                plait_heartbeat_silence(beat[r], n, false) > 0)
                return false;
    return true;
}

static bool third_is_silent(void)
{
    return plait_heartbeat_silence(beat[0], 2, false) > 0;
}

static bool second_is_silent(void)
{
    return plait_heartbeat_silence(beat[0], 1, false) > 0;
}

static bool first_is_alone(void)
{
    return plait_heartbeat_alone(beat[0]);
}

static bool everyone_ended(void)
{
    return plait_heartbeat_ended(beat[0], PLAIT_BEAT_END) &&
           plait_heartbeat_ended(beat[3], PLAIT_BEAT_END);
}

static int start_all(const char *host, const char *secret)
{
    static struct self self[WORLD];
    int fd[WORLD], good = 1;

    for (int r = 0; r < WORLD; r++) {
        fd[r] = plait_heartbeat_open(host, &at[r]);
        good &= fd[r] >= 0 && at[r].port > 0 && (at[r].has4 || at[r].has6);
    }
    plait_heartbeat_correct(host, WORLD, at);
    for (int r = 0; r < WORLD; r++) {
        struct plait_heartbeat_site site = {.world = WORLD,
                                            .node = node_of[r],
                                            .nnodes = NODES,
                                            .node_of = node_of,
                                            .at = at,
                                            .run = 77,
                                            .secret = secret,
                                            .speaks = speaks,
                                            .look = look,
                                            .arg = &self[r]};

        self[r].rank = r;
        beat[r] = fd[r] < 0 ? NULL : plait_heartbeat_create(fd[r], r, &site);
        good &= beat[r] != NULL;
    }
    return good;
}

static void stop_all(void)
{
    for (int r = 0; r < WORLD; r++) {
        plait_heartbeat_destroy(beat[r]);
        beat[r] = NULL;
    }
    silent_rank = -1;
}

/* Asks from the first node for the state of the other nodes' ranks. */
static void ask(struct plait_stuck_rank *ranks)
{
    memset(ranks, 0, WORLD * sizeof(*ranks));
    for (int r = 0; r < WORLD; r++)
        ranks[r].state = PLAIT_STUCK_UNKNOWN;
    plait_heartbeat_ask(beat[0], 240, ranks);
}

/* Sends node 0 an END as another node: one that a process could forge without
 * knowing the secret, or that it has seen on its way to node `to`. */
static void forge(const char *secret, int as, int to)
{
    unsigned char message[PLAIT_BEAT_MOST + PLAIT_HEARTBEAT_SEAL];
    struct plait_beat end = {.kind = PLAIT_BEAT_END,
                             .run = 77,
                             .node = as,
                             .number = UINT64_MAX - 1};
    struct plait_heartbeat_address mine;
    struct plait_heartbeat_link link;
    int fd = plait_heartbeat_open("127.0.0.1", &mine);

    plait_heartbeat_link_init(&link, fd, as, &mine, secret);
    plait_heartbeat_send(&link, to, &at[0], message,
                         plait_beat_pack(&end, message, PLAIT_BEAT_MOST));
    close(fd);
}

static void test_nodes(const char *host)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    struct plait_stuck_rank ranks[WORLD];

    if (!ok(start_all(host, secret), "three nodes at %s", host)) {
        stop_all();
        return;
    }
    ok(wait_for(all_hear_all), "... hear each other");
    ask(ranks);
    ok(ranks[1].step == 101 && ranks[2].step == 102 && ranks[3].step == 103 &&
           ranks[0].state == PLAIT_STUCK_UNKNOWN,
       "... and say what their ranks do");
    silent_rank = 1;
    pause_ms(4500);
    ok(wait_for(all_hear_all),
       "another rank speaks for one that is stopped, and is spoken to");
    ask(ranks);
    ok(ranks[1].step == 101 && ranks[2].step == 102, "... and answers for it");
    plait_heartbeat_destroy(beat[3]);
    beat[3] = NULL;
    ok(wait_for(third_is_silent), "a node that is down is silent");
    ok(plait_heartbeat_silence(beat[0], 2, true) > 0,
       "... and it is known that it had been heard");
    ask(ranks);
    ok(ranks[3].state == PLAIT_STUCK_SILENT && ranks[3].phase_age > 0 &&
           ranks[1].step == 101,
       "... and the question does not wait for it");
    ok(!second_is_silent(), "... nor is another");
    stop_all();
}

static void test_end(void)
{
    if (!ok(start_all("127.0.0.1", "00112233445566778899aabbccddeeff"),
            "three nodes"))
        return;
    ok(wait_for(all_hear_all), "... that run");
    forge("ffeeddccbbaa99887766554433221100", 1, 0);
    pause_ms(500);
    ok(!plait_heartbeat_ended(beat[0], PLAIT_BEAT_END),
       "a message without the secret counts for nothing");
    forge("00112233445566778899aabbccddeeff", 1, 2);
    pause_ms(500);
    ok(!plait_heartbeat_ended(beat[0], PLAIT_BEAT_END),
       "nor does one to another node that somebody sends again");
    plait_heartbeat_end(beat[1], PLAIT_BEAT_END);
    ok(wait_for(everyone_ended), "one says that the run ends, and all know");
    ok(!first_is_alone(), "a node that hears others is not alone");
    for (int r = 1; r < WORLD; r++) {
        if (node_of[r] == node_of[0] || r == 2)
            continue;
        plait_heartbeat_destroy(beat[r]);
        beat[r] = NULL;
    }
    ok(wait_for(first_is_alone), "... and is, once they have gone");
    ok(plait_heartbeat_silence(beat[2], 0, false) > 0 &&
           plait_heartbeat_silence(beat[2], 0, true) == 0,
       "who does not speak for its node never hears, and knows that");
    ok(!plait_heartbeat_alone(beat[2]),
       "... and does not take itself for alone");
    stop_all();
}

int main(void)
{
    state = test_seed();
    test_messages();
    test_spreading();
    test_nodes("127.0.0.1");
    {
        int fd = socket(AF_INET6, SOCK_DGRAM, 0);
        struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                                 .sin6_addr = IN6ADDR_LOOPBACK_INIT};

        if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            test_nodes("::1");
        else
            skip("no IPv6 on this machine");
        if (fd >= 0)
            close(fd);
    }
    test_end();
    return done_testing();
}
